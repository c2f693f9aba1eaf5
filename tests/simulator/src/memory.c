/* Copyright (c) 2026, The gpufleet authors
 * GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * Memory: sizes, errors, remapped rows, retired pages, and the processes that use it.
 */
#include "gpusim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static nvmlReturn_t bytes(int gpu, const char *path, unsigned long long *out) {
    long long value;
    nvmlReturn_t code = sim_number(gpu, path, &value);
    if (code == NVML_SUCCESS)
        *out = (unsigned long long)value;
    return code;
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory) {
    ON_GPU(memory);
    if ((code = bytes(gpu, "fb_memory_usage/total", &memory->total)) != NVML_SUCCESS ||
        (code = bytes(gpu, "fb_memory_usage/free", &memory->free)) != NVML_SUCCESS)
        return code;
    memory->used = memory->total - memory->free; /* version 1 counts what is reserved as used */
    return code;
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory) {
    ON_GPU(memory);
    if (memory->version != nvmlMemory_v2)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if ((code = bytes(gpu, "fb_memory_usage/total", &memory->total)) != NVML_SUCCESS ||
        (code = bytes(gpu, "fb_memory_usage/reserved", &memory->reserved)) != NVML_SUCCESS ||
        (code = bytes(gpu, "fb_memory_usage/used", &memory->used)) != NVML_SUCCESS)
        return code;
    return bytes(gpu, "fb_memory_usage/free", &memory->free);
}

EXPORT nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, nvmlBAR1Memory_t *memory) {
    ON_GPU(memory);
    if ((code = bytes(gpu, "bar1_memory_usage/total", &memory->bar1Total)) != NVML_SUCCESS ||
        (code = bytes(gpu, "bar1_memory_usage/used", &memory->bar1Used)) != NVML_SUCCESS)
        return code;
    return bytes(gpu, "bar1_memory_usage/free", &memory->bar1Free);
}

EXPORT nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *rates) {
    long long of_gpu, of_memory;
    ON_GPU(rates);
    if ((code = sim_number(gpu, "utilization/gpu_util", &of_gpu)) != NVML_SUCCESS ||
        (code = sim_number(gpu, "utilization/memory_util", &of_memory)) != NVML_SUCCESS)
        return code;
    *rates = (nvmlUtilization_t){(unsigned int)of_gpu, (unsigned int)of_memory};
    return code;
}

/* ---- ECC ---- */

/* The sum of the counters that this GPU has; an error other than "not supported" wins. */
static nvmlReturn_t sum(int gpu, const char *scope, const char *const *names, size_t count, unsigned long long *out) {
    nvmlReturn_t result = NVML_ERROR_NOT_SUPPORTED;
    *out = 0;
    for (size_t at = 0; at < count; at++) {
        char path[GPUSIM_TEXT];
        long long value;
        snprintf(path, sizeof path, "ecc_errors/%s/%s", scope, names[at]);
        nvmlReturn_t code = sim_number(gpu, path, &value);
        if (code == NVML_SUCCESS) {
            *out += (unsigned long long)value;
            result = code;
        } else if (code != NVML_ERROR_NOT_SUPPORTED) {
            return code;
        }
    }
    return result;
}

static const char *scope_of(nvmlEccCounterType_t type) { return type == NVML_VOLATILE_ECC ? "volatile" : "aggregate"; }

EXPORT nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, nvmlMemoryErrorType_t error,
                                                nvmlEccCounterType_t counter, unsigned long long *out) {
    static const char *const corrected[] = {"sram_correctable", "dram_correctable", "single_bit/total"};
    static const char *const uncorrected[] = {"sram_uncorrectable", "sram_uncorrectable_parity",
                                              "sram_uncorrectable_secded", "dram_uncorrectable", "double_bit/total"};
    ON_GPU(out);
    return error == NVML_MEMORY_ERROR_TYPE_CORRECTED ? sum(gpu, scope_of(counter), corrected, 3, out)
                                                     : sum(gpu, scope_of(counter), uncorrected, 5, out);
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryErrorCounter(nvmlDevice_t device, nvmlMemoryErrorType_t error,
                                                    nvmlEccCounterType_t counter, nvmlMemoryLocation_t location,
                                                    unsigned long long *out) {
    static const char *const dram[] = {"dram_correctable", "dram_uncorrectable"};
    static const char *const sram[] = {"sram_correctable", "sram_uncorrectable", "sram_uncorrectable_parity",
                                       "sram_uncorrectable_secded"};
    static const char *const bits[] = {"single_bit", "double_bit"};
    static const char *const places[] = {"l1_cache", "l2_cache", "device_memory", "register_file", "texture_memory",
                                         "texture_shm", "cbu"};
    int uncorrected = error == NVML_MEMORY_ERROR_TYPE_UNCORRECTED;
    char old[64];
    const char *name = old;
    ON_GPU(out);
    if (location == NVML_MEMORY_LOCATION_SRAM)
        return uncorrected ? sum(gpu, scope_of(counter), sram + 1, 3, out) : sum(gpu, scope_of(counter), sram, 1, out);
    if ((unsigned int)location >= sizeof places / sizeof *places)
        return NVML_ERROR_INVALID_ARGUMENT;
    snprintf(old, sizeof old, "%s/%s", bits[uncorrected], places[location]);
    code = sum(gpu, scope_of(counter), &name, 1, out);
    return code == NVML_ERROR_NOT_SUPPORTED && location == NVML_MEMORY_LOCATION_DRAM
               ? sum(gpu, scope_of(counter), dram + uncorrected, 1, out)
               : code;
}

EXPORT nvmlReturn_t nvmlDeviceGetSramEccErrorStatus(nvmlDevice_t device, nvmlEccSramErrorStatus_t *out) {
    static const struct {
        const char *path;
        size_t offset;
    } parts[] = {
#define PART(path, field) {"ecc_errors/" path, offsetof(nvmlEccSramErrorStatus_v1_t, field)}
        PART("aggregate/sram_uncorrectable_parity", aggregateUncParity),
        PART("aggregate/sram_uncorrectable_secded", aggregateUncSecDed),
        PART("aggregate/sram_correctable", aggregateCor),
        PART("volatile/sram_uncorrectable_parity", volatileUncParity),
        PART("volatile/sram_uncorrectable_secded", volatileUncSecDed),
        PART("volatile/sram_correctable", volatileCor),
        PART("aggregate_uncorrectable_sram_sources/sram_l2", aggregateUncBucketL2),
        PART("aggregate_uncorrectable_sram_sources/sram_sm", aggregateUncBucketSm),
        PART("aggregate_uncorrectable_sram_sources/sram_pcie", aggregateUncBucketPcie),
        PART("aggregate_uncorrectable_sram_sources/sram_microcontroller", aggregateUncBucketMcu),
        PART("aggregate_uncorrectable_sram_sources/sram_other", aggregateUncBucketOther),
    };
    ON_GPU(out);
    if (out->version != nvmlEccSramErrorStatus_v1)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (geteuid() != 0)
        return NVML_ERROR_NO_PERMISSION; /* as its reference says */
    for (size_t at = 0; at < sizeof parts / sizeof *parts; at++)
        if ((code = bytes(gpu, parts[at].path, (unsigned long long *)((char *)out + parts[at].offset))))
            return code;
    return sim_flag(gpu, "ecc_errors/aggregate/sram_threshold_exceeded", &out->bThresholdExceeded);
}

EXPORT nvmlReturn_t nvmlDeviceGetRepairStatus(nvmlDevice_t device, nvmlRepairStatus_t *out) {
    ON_GPU(out);
    if (out->version != nvmlRepairStatus_v1)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    code = sim_flag(gpu, "ecc_errors/channel_repair_pending", &out->bChannelRepairPending);
    return code ? code : sim_flag(gpu, "ecc_errors/tpc_repair_pending", &out->bTpcRepairPending);
}

EXPORT nvmlReturn_t nvmlDeviceGetUnrepairableMemoryFlag_v1(nvmlDevice_t device,
                                                           nvmlUnrepairableMemoryStatus_v1_t *out) {
    ON_GPU(out);
    return sim_flag(gpu, "ecc_errors/unrepairable_memory", &out->bUnrepairableMemory);
}

/* ---- rows and pages ---- */

static nvmlReturn_t count_of(int gpu, const char *path, unsigned int *out) {
    unsigned long long value;
    nvmlReturn_t code = bytes(gpu, path, &value);
    if (code == NVML_SUCCESS)
        *out = (unsigned int)value;
    return code;
}

EXPORT nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned int *corrected, unsigned int *uncorrected,
                                              unsigned int *pending, unsigned int *failed) {
    ON_GPU(corrected, uncorrected, pending, failed);
    if ((code = count_of(gpu, "remapped_rows/remapped_row_corr", corrected)) ||
        (code = count_of(gpu, "remapped_rows/remapped_row_unc", uncorrected)) ||
        (code = sim_flag(gpu, "remapped_rows/remapped_row_pending", pending)))
        return code;
    return sim_flag(gpu, "remapped_rows/remapped_row_failure", failed);
}

EXPORT nvmlReturn_t nvmlDeviceGetRowRemapperHistogram(nvmlDevice_t device, nvmlRowRemapperHistogramValues_t *out) {
    ON_GPU(out);
    if ((code = count_of(gpu, "remapped_rows/row_remapper_histogram/row_remapper_histogram_max", &out->max)) ||
        (code = count_of(gpu, "remapped_rows/row_remapper_histogram/row_remapper_histogram_high", &out->high)) ||
        (code = count_of(gpu, "remapped_rows/row_remapper_histogram/row_remapper_histogram_partial", &out->partial)) ||
        (code = count_of(gpu, "remapped_rows/row_remapper_histogram/row_remapper_histogram_low", &out->low)))
        return code;
    return count_of(gpu, "remapped_rows/row_remapper_histogram/row_remapper_histogram_none", &out->none);
}

static nvmlReturn_t retired(nvmlDevice_t device, nvmlPageRetirementCause_t cause, unsigned int *count,
                            unsigned long long *addresses, unsigned long long *times) {
    static const char *const causes[] = {"multiple_single_bit_retirement", "double_bit_retirement"};
    char path[GPUSIM_TEXT];
    unsigned int found;
    ON_GPU(count);
    if ((unsigned int)cause > 1)
        return NVML_ERROR_INVALID_ARGUMENT;
    snprintf(path, sizeof path, "retired_pages/%s/retired_count", causes[cause]);
    if ((code = count_of(gpu, path, &found)) != NVML_SUCCESS)
        return code;
    unsigned int room = addresses ? *count : 0;
    *count = found;
    for (unsigned int at = 0; at < found && at < room; at++) {
        addresses[at] = 0x1000ULL * (at + 1);
        if (times)
            times[at] = 0;
    }
    return found > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetRetiredPages(nvmlDevice_t device, nvmlPageRetirementCause_t cause,
                                              unsigned int *count, unsigned long long *addresses) {
    return retired(device, cause, count, addresses, NULL);
}

EXPORT nvmlReturn_t nvmlDeviceGetRetiredPages_v2(nvmlDevice_t device, nvmlPageRetirementCause_t cause,
                                                 unsigned int *count, unsigned long long *addresses,
                                                 unsigned long long *times) {
    return retired(device, cause, count, addresses, times);
}

/* ---- processes ---- */

static nvmlReturn_t processes(nvmlDevice_t device, const char *types, unsigned int *count, nvmlProcessInfo_t *out) {
    unsigned int room, found = 0;
    ON_GPU(count);
    room = out ? *count : 0;
    for (unsigned int at = 0;; at++) {
        char type[GPUSIM_TEXT], path[64];
        long long pid, used;
        code = sim_format(gpu, type, sizeof type, "processes/process_info[%u]/type", at);
        if (code == NVML_SUCCESS && !type[0]) /* an empty list: the text of its parent */
            code = NVML_ERROR_NOT_SUPPORTED;
        if (code != NVML_SUCCESS)
            break;
        if (!strstr(types, type))
            continue;
        snprintf(path, sizeof path, "processes/process_info[%u]/pid", at);
        if ((code = sim_number(gpu, path, &pid)) != NVML_SUCCESS)
            return code;
        snprintf(path, sizeof path, "processes/process_info[%u]/used_memory", at);
        if (sim_number(gpu, path, &used) != NVML_SUCCESS)
            used = (long long)NVML_VALUE_NOT_AVAILABLE;
        if (found < room)
            out[found] = (nvmlProcessInfo_t){(unsigned int)pid, (unsigned long long)used, ~0U, ~0U};
        found++;
    }
    *count = found;
    if (code != NVML_ERROR_NOT_SUPPORTED)
        return code;
    return found > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

/* "C+G" is in both lists, as on a real GPU. */
EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count,
                                                            nvmlProcessInfo_t *infos) {
    return processes(device, " C C+G ", count, infos);
}
EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned int *count,
                                                            nvmlProcessInfo_v2_t *infos) {
    return processes(device, " C C+G ", count, infos);
}
EXPORT nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device, unsigned int *count,
                                                             nvmlProcessInfo_t *infos) {
    return processes(device, " G C+G ", count, infos);
}
EXPORT nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count,
                                                               nvmlProcessInfo_t *infos) {
    return processes(device, " M+C ", count, infos);
}
