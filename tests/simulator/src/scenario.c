/* Copyright (c) 2026, The gpufleet authors
 * GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * The scenario: two files beside this library, read again when they change.
 *
 *   scenario  what gpusim wrote, in the order of the XML
 *   state     what was set since, by setters and by gpusim-set: lines "KEY<TAB>VALUE<TAB>EPOCH", the last one counts
 *
 * VALUE is STEP { " | " WHEN ": " STEP }, WHEN is "2.5s" (since the start, or since it was set) or "3 calls" (reads of
 * this key by any process), and the last one whose time has come counts. STEP is the text that nvidia-smi prints, of
 * which "N/A", "Unknown Error", "GPU is lost" and the like are errors here, or
 *
 *   @hang              sleeps for ever             @stuck   waits in the kernel, where no signal reaches it
 *   @slow 2.5s STEP    sleeps first                @error 4 that NVML code
 *   @unsupported @unknown @lost @denied @deprecated @absent
 *
 * Files are read with open and lseek, not stat: that name is too new for older C libraries.
 */
#define _GNU_SOURCE
#include "gpusim.h"

#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define COUNTERS 65536
#define STATE_COUNTERS 32768 /* where the counters of the second file begin */

struct entry {
    const char *key;
    const char *value;
    double since;
    unsigned int counter;
};

struct file {
    const char *name;
    unsigned int first_counter;
    char *text;
    struct entry *entries; /* sorted by key, the last line of a key first */
    size_t count;
    struct statx seen;
};

static struct file files[] = {{.name = "state", .first_counter = STATE_COUNTERS}, {.name = "scenario"}};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char directory[1024];
static uint32_t private_counters[COUNTERS];
static uint32_t *counters;

/* ---- where the files are: beside the library ---- */

static int find_self(struct dl_phdr_info *info, size_t size, void *data) {
    (void)size;
    uintptr_t own = (uintptr_t)data;
    for (int at = 0; at < info->dlpi_phnum; at++) {
        uintptr_t start = info->dlpi_addr + info->dlpi_phdr[at].p_vaddr;
        if (info->dlpi_phdr[at].p_type == PT_LOAD && own >= start && own < start + info->dlpi_phdr[at].p_memsz) {
            char *real = realpath(info->dlpi_name, NULL);
            snprintf(directory, sizeof directory, "%s", real ? real : info->dlpi_name);
            free(real);
            char *slash = strrchr(directory, '/');
            if (slash)
                *slash = 0;
            return 1;
        }
    }
    return 0;
}

static void locate(char *path, size_t size, const char *name) {
    if (!directory[0])
        dl_iterate_phdr(find_self, (void *)(uintptr_t)&find_self);
    snprintf(path, size, "%s/%s", directory, name);
}

/* ---- reading ---- */

static double now_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static int by_key(const void *left, const void *right) {
    const struct entry *a = left, *b = right;
    int order = strcmp(a->key, b->key);
    return order ? order : (a->counter < b->counter) - (a->counter > b->counter);
}

static void parse(struct file *file) {
    size_t lines = 0;
    for (char *at = file->text; *at; at++)
        lines += *at == '\n';
    file->entries = calloc(lines + 1, sizeof *file->entries);
    file->count = 0;
    char *rest = file->text, *line;
    for (unsigned int number = 0; file->entries && (line = strsep(&rest, "\n")); number++) {
        char *key = strsep(&line, "\t"), *value = strsep(&line, "\t");
        if (!value || file->count > lines)
            continue;
        unsigned int counter = file->first_counter + number;
        file->entries[file->count++] = (struct entry){key, value, line ? strtod(line, NULL) : 0, counter % COUNTERS};
    }
    if (file->entries)
        qsort(file->entries, file->count, sizeof *file->entries, by_key);
}

/* Looks for changes at most once in some milliseconds: a probe makes hundreds of calls. What this process set itself
 * counts at once. */
#define FRESH_SECONDS 0.005
static double looked;

static void refresh(struct file *file) {
    char path[1200];
    struct statx now = {0};
    locate(path, sizeof path, file->name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0)
        statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &now);
    int same = now.stx_ino == file->seen.stx_ino && now.stx_size == file->seen.stx_size &&
               now.stx_mtime.tv_sec == file->seen.stx_mtime.tv_sec &&
               now.stx_mtime.tv_nsec == file->seen.stx_mtime.tv_nsec;
    if (!same) {
        free(file->text);
        free(file->entries);
        *file = (struct file){.name = file->name, .first_counter = file->first_counter, .seen = now};
        file->text = calloc(1, (size_t)now.stx_size + 1);
        if (file->text && fd >= 0 && read(fd, file->text, (size_t)now.stx_size) >= 0)
            parse(file);
    }
    if (fd >= 0)
        close(fd);
}

static uint32_t *open_counters(void) {
    char path[1200];
    locate(path, sizeof path, "calls");
    int fd = open(path, O_RDWR | O_CLOEXEC);
    void *map = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof private_counters, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd >= 0)
        close(fd);
    return map == MAP_FAILED ? private_counters : map;
}

static const struct entry *find(const struct file *file, const char *key) {
    size_t low = 0, high = file->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (strcmp(file->entries[middle].key, key) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low < file->count && !strcmp(file->entries[low].key, key) ? &file->entries[low] : NULL;
}

/* The entry of a key or, where a parent was replaced by one text ("remapped_rows" is "N/A"), of that parent. */
static const struct entry *find_or_parent(int gpu, const char *path) {
    char key[GPUSIM_TEXT], parent[GPUSIM_TEXT];
    size_t root = gpu == GPUSIM_GLOBAL ? 0 : (size_t)snprintf(key, sizeof key, "gpu/%d/", gpu);
    snprintf(key + root, sizeof key - root, "%s", path);
    for (size_t which = 0; which < sizeof files / sizeof *files; which++) {
        snprintf(parent, sizeof parent, "%s", key);
        for (char *end = parent + strlen(parent); end && end > parent + root; end = strrchr(parent, '/')) {
            *end = 0;
            const struct entry *entry = find(&files[which], parent);
            /* an empty parent says only that it has no children: "processes" */
            if (entry && (entry->value[0] || !strcmp(parent, key)))
                return entry;
        }
    }
    return NULL;
}

/* ---- what a value says now ---- */

static double started(void) {
    const struct entry *entry = find(&files[1], "sim/start");
    return entry ? strtod(entry->value, NULL) : 0;
}

/* Reads "2.5s: " or "3 calls: "; returns what follows, NULL where it is neither. */
static const char *read_when(const char *text, double *amount, int *calls) {
    char *end;
    *amount = strtod(text, &end);
    if (end == text)
        return NULL;
    const char *units[] = {"s: ", " calls: ", " call: "};
    for (int at = 0; at < 3; at++)
        if (!strncmp(end, units[at], strlen(units[at]))) {
            *calls = at > 0;
            return end + strlen(units[at]);
        }
    return NULL;
}

static void current_step(const struct entry *entry, int count_it, char *out, size_t size) {
    const char *step = entry->value, *bar = strstr(step, " | ");
    size_t length = bar ? (size_t)(bar - step) : strlen(step);
    uint32_t calls = 0;
    if (bar) {
        counters = counters ? counters : open_counters();
        calls = count_it ? __atomic_fetch_add(&counters[entry->counter], 1, __ATOMIC_RELAXED) : counters[entry->counter];
    }
    double age = bar ? now_seconds() - (entry->since > 0 ? entry->since : started()) : 0;
    while (bar) {
        double amount;
        int by_calls;
        const char *next = read_when(bar + 3, &amount, &by_calls);
        const char *end = strstr(bar + 3, " | ");
        if (next && (by_calls ? calls >= amount : age >= amount)) {
            step = next;
            length = end ? (size_t)(end - next) : strlen(next);
        }
        bar = end;
    }
    snprintf(out, size, "%.*s", (int)length, step);
}

static const struct {
    const char *alias;
    nvmlReturn_t code;
} aliases[] = {
    {"@unsupported", NVML_ERROR_NOT_SUPPORTED}, {"@unknown", NVML_ERROR_UNKNOWN},
    {"@lost", NVML_ERROR_GPU_IS_LOST},          {"@denied", NVML_ERROR_NO_PERMISSION},
    {"@deprecated", NVML_ERROR_DEPRECATED},     {"@absent", NVML_ERROR_NOT_SUPPORTED},
    {"@hidden", NVML_ERROR_NOT_FOUND},          {"@gone", NVML_ERROR_NOT_FOUND},
    {"[N/A]", NVML_ERROR_NOT_SUPPORTED},        {"[Unknown Error]", NVML_ERROR_UNKNOWN},
};

static nvmlReturn_t error_of(const char *text) {
    if (!strncmp(text, "@error ", 7))
        return (nvmlReturn_t)atoi(text + 7);
    for (size_t at = 0; at < sizeof aliases / sizeof *aliases; at++)
        if (!strcmp(text, aliases[at].alias))
            return aliases[at].code;
    return sim_error_code(text);
}

static void wait_in_kernel(void) {
    char path[1200];
    locate(path, sizeof path, "stuck/file");
    int fd = open(path, O_RDONLY);
    if (fd >= 0)
        close(fd);
}

/* Carries a step out: waits, then leaves its text in `step` or returns its error. */
static nvmlReturn_t perform(char *step) {
    char *text = step;
    while (!strncmp(text, "@slow ", 6)) {
        double seconds = strtod(text + 6, &text);
        struct timespec left = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
        while (nanosleep(&left, &left) && errno == EINTR)
            ;
        text += strspn(text, "s");
        text += strspn(text, " ");
    }
    memmove(step, text, strlen(text) + 1);
    if (!strcmp(step, "@stuck"))
        wait_in_kernel(); /* comes back only where there is nothing to wait for */
    if (!strcmp(step, "@stuck") || !strcmp(step, "@hang"))
        for (;;)
            pause();
    return error_of(step);
}

static nvmlReturn_t read_key(int gpu, const char *path, char *out, size_t size, int count_it) {
    char step[GPUSIM_TEXT] = "";
    pthread_mutex_lock(&lock);
    double now = now_seconds();
    if (now < looked || now - looked > FRESH_SECONDS) {
        refresh(&files[0]);
        refresh(&files[1]);
        looked = now;
    }
    const struct entry *entry = find_or_parent(gpu, path);
    if (entry)
        current_step(entry, count_it, step, sizeof step);
    pthread_mutex_unlock(&lock);
    if (!entry)
        return NVML_ERROR_NOT_SUPPORTED;
    nvmlReturn_t code = count_it ? perform(step) : NVML_SUCCESS;
    if (out)
        snprintf(out, size, "%s", step);
    return code;
}

/* ---- what the other files call ---- */

nvmlReturn_t sim_raw(int gpu, const char *path, char *out, size_t size) { return read_key(gpu, path, out, size, 0); }

nvmlReturn_t sim_text(int gpu, const char *path, char *out, size_t size) {
    char names[GPUSIM_TEXT], *rest = names, *name;
    nvmlReturn_t code = NVML_ERROR_NOT_SUPPORTED;
    snprintf(names, sizeof names, "%s", path);
    while (code == NVML_ERROR_NOT_SUPPORTED && (name = strsep(&rest, "|")))
        code = read_key(gpu, name, out, size, 1);
    return code;
}

nvmlReturn_t sim_format(int gpu, char *out, size_t size, const char *format, ...) {
    char path[GPUSIM_TEXT];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(path, sizeof path, format, arguments);
    va_end(arguments);
    return sim_text(gpu, path, out, size);
}

nvmlReturn_t sim_number(int gpu, const char *path, long long *out) {
    static const struct {
        const char *unit;
        double factor;
    } units[] = {{"", 1}, {"C", 1}, {"MHz", 1}, {"%", 1}, {"x", 1}, {"us", 1}, {"KB/s", 1}, {"bank(s)", 1},
                 {"W", 1000}, {"MiB", 1048576}, {"KiB", 1024}, {"GB/s", 1000}, {"mJ", 1}};
    char text[GPUSIM_TEXT], *end;
    nvmlReturn_t code = sim_text(gpu, path, text, sizeof text);
    if (code != NVML_SUCCESS)
        return code;
    int hex = !strncmp(text, "0x", 2);
    double fraction = hex ? 0 : strtod(text, &end);
    *out = hex ? (long long)strtoull(text, &end, 16) : (long long)fraction;
    if (end == text)
        return text[0] ? NVML_ERROR_UNKNOWN : NVML_ERROR_NOT_SUPPORTED;
    end += strspn(end, " ");
    for (size_t at = 0; at < sizeof units / sizeof *units; at++)
        if (!strcmp(end, units[at].unit)) {
            if (!hex && units[at].factor > 1)
                *out = (long long)(fraction * units[at].factor + 0.5);
            return NVML_SUCCESS;
        }
    return NVML_ERROR_UNKNOWN;
}

nvmlReturn_t sim_name(int gpu, const char *path, const char *const *names, unsigned int count, unsigned int *out) {
    char text[GPUSIM_TEXT];
    nvmlReturn_t code = sim_text(gpu, path, text, sizeof text);
    for (unsigned int at = 0; code == NVML_SUCCESS && at < count; at++)
        if (names[at] && !strcmp(text, names[at])) {
            *out = at;
            return NVML_SUCCESS;
        }
    return code == NVML_SUCCESS ? NVML_ERROR_UNKNOWN : code;
}

nvmlReturn_t sim_flag(int gpu, const char *path, unsigned int *out) {
    static const char *const words[] = {"No",     "Yes", "Disabled", "Enabled",  "Not Active", "Active",
                                        "Inactive", "On",  "False",    "True", "0", "1"};
    unsigned int word;
    nvmlReturn_t code = sim_name(gpu, path, words, sizeof words / sizeof *words, &word);
    if (code == NVML_SUCCESS)
        *out = word % 2;
    return code;
}

nvmlReturn_t sim_store(int gpu, const char *path, const char *value) {
    char file[1200], line[2 * GPUSIM_TEXT], prefix[32] = "";
    if (gpu != GPUSIM_GLOBAL)
        snprintf(prefix, sizeof prefix, "gpu/%d%s", gpu, path[0] ? "/" : "");
    int length = snprintf(line, sizeof line, "%s%s\t%s\t%.3f\n", prefix, path, value, now_seconds());
    locate(file, sizeof file, "state");
    int fd = open(file, O_WRONLY | O_APPEND | O_CLOEXEC);
    if (fd < 0)
        return NVML_ERROR_NO_PERMISSION;
    ssize_t written = write(fd, line, (size_t)length);
    looked = 0;
    close(fd);
    return written == length ? NVML_SUCCESS : NVML_ERROR_OPERATING_SYSTEM;
}
