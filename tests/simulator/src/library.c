/* Copyright (c) 2026, The gpufleet authors
 * GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * The library itself, the system, and which GPUs there are.
 */
#include "gpusim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct nvmlDevice_st devices[GPUSIM_MAX_GPUS];
static int users;

/* ---- errors ---- */

static const struct {
    nvmlReturn_t code;
    const char *text;    /* nvmlErrorString */
    const char *printed; /* in nvidia-smi in place of a value, where that differs */
} errors[] = {
    {NVML_SUCCESS, "Success", NULL},
    {NVML_ERROR_UNINITIALIZED, "Uninitialized", NULL},
    {NVML_ERROR_INVALID_ARGUMENT, "Invalid Argument", NULL},
    {NVML_ERROR_NOT_SUPPORTED, "Not Supported", "N/A"},
    {NVML_ERROR_NO_PERMISSION, "Insufficient Permissions", NULL},
    {NVML_ERROR_ALREADY_INITIALIZED, "Already Initialized", NULL},
    {NVML_ERROR_NOT_FOUND, "Not Found", NULL},
    {NVML_ERROR_INSUFFICIENT_SIZE, "Insufficient Size", NULL},
    {NVML_ERROR_INSUFFICIENT_POWER, "Insufficient External Power", NULL},
    {NVML_ERROR_DRIVER_NOT_LOADED, "Driver Not Loaded", NULL},
    {NVML_ERROR_TIMEOUT, "Timeout", NULL},
    {NVML_ERROR_IRQ_ISSUE, "Interrupt Request Issue", NULL},
    {NVML_ERROR_LIBRARY_NOT_FOUND, "NVML Shared Library Not Found", NULL},
    {NVML_ERROR_FUNCTION_NOT_FOUND, "Function Not Found", NULL},
    {NVML_ERROR_CORRUPTED_INFOROM, "Corrupted infoROM", NULL},
    {NVML_ERROR_GPU_IS_LOST, "GPU is lost", NULL},
    {NVML_ERROR_RESET_REQUIRED, "GPU requires restart", "GPU requires reset"},
    {NVML_ERROR_OPERATING_SYSTEM, "The operating system has blocked the request.", NULL},
    {NVML_ERROR_LIB_RM_VERSION_MISMATCH, "RM has detected an NVML/RM version mismatch.", NULL},
    {NVML_ERROR_DEPRECATED, "Requested functionality has been deprecated", NULL},
    {NVML_ERROR_UNKNOWN, "Unknown Error", NULL},
};

const char *sim_error_text(nvmlReturn_t code) {
    for (size_t at = 1; at < sizeof errors / sizeof *errors; at++)
        if (errors[at].code == code)
            return errors[at].printed ? errors[at].printed : errors[at].text;
    return NULL;
}

nvmlReturn_t sim_error_code(const char *text) {
    for (size_t at = 1; at < sizeof errors / sizeof *errors; at++)
        if (!strcmp(text, errors[at].printed ? errors[at].printed : errors[at].text))
            return errors[at].code;
    return NVML_SUCCESS;
}

EXPORT const char *nvmlErrorString(nvmlReturn_t result) {
    for (size_t at = 0; at < sizeof errors / sizeof *errors; at++)
        if (errors[at].code == result)
            return errors[at].text;
    return "Unknown Error";
}

/* ---- beginning and end ---- */

EXPORT nvmlReturn_t nvmlInitWithFlags(unsigned int flags) {
    char loaded[GPUSIM_TEXT], library[GPUSIM_TEXT], text[GPUSIM_TEXT];
    (void)flags;
    nvmlReturn_t code = sim_text(GPUSIM_GLOBAL, "sim/init", text, sizeof text);
    if (code != NVML_SUCCESS)
        return code;
    sim_raw(GPUSIM_GLOBAL, "sim/driver_loaded", text, sizeof text);
    if (strcmp(text, "Yes"))
        return NVML_ERROR_DRIVER_NOT_LOADED;
    if (sim_raw(GPUSIM_GLOBAL, "driver_version", loaded, sizeof loaded) != NVML_SUCCESS ||
        sim_raw(GPUSIM_GLOBAL, "sim/library_version", library, sizeof library) != NVML_SUCCESS)
        return NVML_ERROR_UNKNOWN;
    if (strcmp(loaded, library))
        return NVML_ERROR_LIB_RM_VERSION_MISMATCH;
    for (int gpu = 0; gpu < GPUSIM_MAX_GPUS; gpu++)
        devices[gpu].gpu = gpu;
    users++;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
EXPORT nvmlReturn_t nvmlInit(void) { return nvmlInitWithFlags(0); }

EXPORT nvmlReturn_t nvmlShutdown(void) {
    if (!users)
        return NVML_ERROR_UNINITIALIZED;
    users--;
    return NVML_SUCCESS;
}

/* ---- a call's common beginning ---- */

static nvmlReturn_t device_state(int gpu) {
    char text[GPUSIM_TEXT];
    return sim_text(gpu, "sim/device", text, sizeof text);
}

nvmlReturn_t sim_begin(nvmlDevice_t device, int *gpu) {
    if (!users)
        return NVML_ERROR_UNINITIALIZED;
    if (device < devices || device >= devices + GPUSIM_MAX_GPUS)
        return NVML_ERROR_INVALID_ARGUMENT;
    *gpu = device->gpu;
    return device_state(*gpu);
}

nvmlReturn_t sim_may_write(nvmlDevice_t device, int *gpu) {
    nvmlReturn_t code = sim_begin(device, gpu);
    return code == NVML_SUCCESS && geteuid() != 0 ? NVML_ERROR_NO_PERMISSION : code;
}

nvmlReturn_t sim_string(int gpu, const char *path, char *out, unsigned int size) {
    char text[GPUSIM_TEXT];
    if (!users)
        return NVML_ERROR_UNINITIALIZED;
    if (!out)
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t code = sim_text(gpu, path, text, sizeof text);
    if (code != NVML_SUCCESS)
        return code;
    if (strlen(text) >= size)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    strcpy(out, text);
    return NVML_SUCCESS;
}

nvmlDevice_t sim_device(int gpu) { return &devices[gpu]; }

unsigned int sim_devices(nvmlDevice_t *out) {
    char text[GPUSIM_TEXT] = "0";
    unsigned int count = 0;
    sim_raw(GPUSIM_GLOBAL, "sim/gpus", text, sizeof text);
    int all = atoi(text);
    sim_raw(GPUSIM_GLOBAL, "sim/devices", text, sizeof text);
    unsigned int most = (unsigned int)atoi(text);
    for (int gpu = 0; gpu < all && gpu < GPUSIM_MAX_GPUS && count < most; gpu++) {
        text[0] = 0;
        sim_raw(gpu, "sim/device", text, sizeof text);
        if (strcmp(text, "@hidden") && strcmp(text, "@gone"))
            out[count++] = &devices[gpu];
    }
    return count;
}

/* ---- the system ---- */

EXPORT nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length) {
    return sim_string(GPUSIM_GLOBAL, "driver_version", version, length);
}

EXPORT nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned int length) {
    char text[2 * GPUSIM_TEXT], library[GPUSIM_TEXT], cuda[GPUSIM_TEXT];
    if (!version)
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t code = sim_text(GPUSIM_GLOBAL, "sim/library_version", library, sizeof library);
    if (code == NVML_SUCCESS)
        code = sim_text(GPUSIM_GLOBAL, "cuda_version", cuda, sizeof cuda);
    if (code != NVML_SUCCESS)
        return code;
    snprintf(text, sizeof text, "%d.%s", atoi(cuda), library);
    if (strlen(text) >= length)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    strcpy(version, text);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version) {
    char text[GPUSIM_TEXT];
    int major, minor;
    if (!version)
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t code = sim_text(GPUSIM_GLOBAL, "cuda_version", text, sizeof text);
    if (code != NVML_SUCCESS)
        return code;
    if (sscanf(text, "%d.%d", &major, &minor) != 2)
        return NVML_ERROR_UNKNOWN;
    *version = major * 1000 + minor * 10;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version) { return nvmlSystemGetCudaDriverVersion(version); }

EXPORT nvmlReturn_t nvmlSystemGetProcessName(unsigned int pid, char *name, unsigned int length) {
    char path[64];
    snprintf(path, sizeof path, "sim/process/%u", pid);
    nvmlReturn_t code = sim_string(GPUSIM_GLOBAL, path, name, length);
    return code == NVML_ERROR_NOT_SUPPORTED ? NVML_ERROR_NOT_FOUND : code;
}

/* ---- handles ---- */

EXPORT nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count) {
    nvmlDevice_t shown[GPUSIM_MAX_GPUS];
    if (!users)
        return NVML_ERROR_UNINITIALIZED;
    if (!count)
        return NVML_ERROR_INVALID_ARGUMENT;
    *count = sim_devices(shown);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device) {
    nvmlDevice_t shown[GPUSIM_MAX_GPUS];
    if (!users)
        return NVML_ERROR_UNINITIALIZED;
    if (!device || index >= sim_devices(shown))
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t code = device_state(shown[index]->gpu);
    if (code == NVML_SUCCESS)
        *device = shown[index];
    return code;
}

static int same_text(int gpu, const char *path, const char *wanted) {
    char text[GPUSIM_TEXT];
    return sim_raw(gpu, path, text, sizeof text) == NVML_SUCCESS && !strcmp(text, wanted);
}

static int read_address(const char *text, unsigned int parts[4]) {
    parts[0] = parts[3] = 0;
    return sscanf(text, "%x:%x:%x.%x", &parts[0], &parts[1], &parts[2], &parts[3]) >= 3 ||
           sscanf(text, "%x:%x.%x", &parts[1], &parts[2], &parts[3]) >= 2;
}

static int same_address(int gpu, const char *path, const char *wanted) {
    char text[GPUSIM_TEXT];
    unsigned int own[4], other[4];
    return sim_raw(gpu, path, text, sizeof text) == NVML_SUCCESS && read_address(text, own) &&
           read_address(wanted, other) && !memcmp(own, other, sizeof own);
}

static nvmlReturn_t search(const char *path, const char *wanted, nvmlDevice_t *device,
                           int (*same)(int, const char *, const char *)) {
    nvmlDevice_t shown[GPUSIM_MAX_GPUS];
    if (!users)
        return NVML_ERROR_UNINITIALIZED;
    if (!wanted || !device)
        return NVML_ERROR_INVALID_ARGUMENT;
    unsigned int count = sim_devices(shown);
    for (unsigned int index = 0; index < count; index++)
        if (same(shown[index]->gpu, path, wanted))
            return nvmlDeviceGetHandleByIndex_v2(index, device);
    return NVML_ERROR_NOT_FOUND;
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device) {
    return search("uuid", uuid, device, same_text);
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleBySerial(const char *serial, nvmlDevice_t *device) {
    return search("serial", serial, device, same_text);
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nvmlDevice_t *device) {
    return search("pci/pci_bus_id", bus_id, device, same_address);
}

EXPORT nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index) {
    nvmlDevice_t shown[GPUSIM_MAX_GPUS];
    ON_GPU(index);
    unsigned int count = sim_devices(shown);
    for (*index = 0; *index < count; (*index)++)
        if (shown[*index]->gpu == gpu)
            return NVML_SUCCESS;
    return NVML_ERROR_UNKNOWN;
}

/* ---- PCI ---- */

nvmlReturn_t sim_pci(const char *bus_id, long long device_id, long long subsystem_id, nvmlPciInfo_t *pci) {
    unsigned int parts[4];
    if (!read_address(bus_id, parts))
        return NVML_ERROR_UNKNOWN;
    memset(pci, 0, sizeof *pci);
    pci->domain = parts[0];
    pci->bus = parts[1];
    pci->device = parts[2];
    pci->pciDeviceId = (unsigned int)device_id;
    pci->pciSubSystemId = (unsigned int)subsystem_id;
    snprintf(pci->busId, sizeof pci->busId, "%08X:%02X:%02X.%X", parts[0], parts[1], parts[2], parts[3]);
    snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "%04X:%02X:%02X.%X", parts[0] & 0xffff, parts[1] & 0xff,
             parts[2] & 0xff, parts[3] & 0xf);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci) {
    char bus_id[GPUSIM_TEXT], device_id[GPUSIM_TEXT], subsystem_id[GPUSIM_TEXT];
    ON_GPU(pci);
    if ((code = sim_text(gpu, "pci/pci_bus_id", bus_id, sizeof bus_id)) != NVML_SUCCESS ||
        (code = sim_text(gpu, "pci/pci_device_id", device_id, sizeof device_id)) != NVML_SUCCESS ||
        (code = sim_text(gpu, "pci/pci_sub_system_id", subsystem_id, sizeof subsystem_id)) != NVML_SUCCESS)
        return code;
    return sim_pci(bus_id, strtoll(device_id, NULL, 16), strtoll(subsystem_id, NULL, 16), pci);
}

EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t device, nvmlPciInfo_t *pci) {
    return nvmlDeviceGetPciInfo_v3(device, pci);
}

EXPORT nvmlReturn_t nvmlDeviceGetPciInfoExt(nvmlDevice_t device, nvmlPciInfoExt_t *pci) {
    nvmlPciInfo_t plain;
    char text[GPUSIM_TEXT];
    if (pci && pci->version != nvmlPciInfoExt_v1)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    ON_GPU(pci);
    code = nvmlDeviceGetPciInfo_v3(device, &plain);
    if (code != NVML_SUCCESS)
        return code;
    *pci = (nvmlPciInfoExt_t){.version = nvmlPciInfoExt_v1, .domain = plain.domain, .bus = plain.bus,
                              .device = plain.device, .pciDeviceId = plain.pciDeviceId,
                              .pciSubSystemId = plain.pciSubSystemId, .baseClass = 3, .subClass = 2};
    strcpy(pci->busId, plain.busId);
    if (sim_text(gpu, "pci/pci_base_class", text, sizeof text) == NVML_SUCCESS)
        pci->baseClass = (unsigned int)strtoul(text, NULL, 16);
    if (sim_text(gpu, "pci/pci_sub_class", text, sizeof text) == NVML_SUCCESS)
        pci->subClass = (unsigned int)strtoul(text, NULL, 16);
    return NVML_SUCCESS;
}
