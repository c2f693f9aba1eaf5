/* Copyright (c) 2026, The gpufleet authors
 * GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * Calls that answer lists and records: licences of a virtual GPU, the place in a rack, clocks that can be set, MIG.
 */
#include "gpusim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- licences ---- */

static nvmlReturn_t licences(nvmlDevice_t device, nvmlGridLicensableFeatures_t *out) {
    char product[GPUSIM_TEXT], status[GPUSIM_TEXT];
    ON_GPU(out);
    memset(out, 0, sizeof *out);
    code = sim_text(gpu, "vgpu_software_licensed_product/license_status", status, sizeof status);
    if (code == NVML_ERROR_NOT_SUPPORTED)
        return NVML_SUCCESS; /* not a virtual GPU: "not supported" is the record's first field */
    if (code != NVML_SUCCESS)
        return code;
    code = sim_text(gpu, "vgpu_software_licensed_product/licensed_product_name", product, sizeof product);
    if (code == NVML_ERROR_NOT_SUPPORTED)
        product[0] = 0; /* only the status was set */
    else if (code != NVML_SUCCESS)
        return code;
    int licensed = !strncmp(status, "Licensed", 8);
    nvmlGridLicensableFeature_t *feature = &out->gridLicensableFeatures[0];
    out->isGridLicenseSupported = 1;
    out->licensableFeaturesCount = 1;
    feature->featureCode = strstr(product, "Compute") ? NVML_GRID_LICENSE_FEATURE_CODE_COMPUTE
                                                      : NVML_GRID_LICENSE_FEATURE_CODE_NVIDIA_RTX;
    feature->featureState = feature->featureEnabled = (unsigned int)licensed;
    feature->licenseExpiry.status = licensed ? NVML_GRID_LICENSE_EXPIRY_PERMANENT : NVML_GRID_LICENSE_EXPIRY_NOT_AVAILABLE;
    snprintf(feature->productName, sizeof feature->productName, "%.127s", product);
    snprintf(feature->licenseInfo, sizeof feature->licenseInfo, "%.127s", status);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetGridLicensableFeatures_v4(nvmlDevice_t device, nvmlGridLicensableFeatures_t *out) {
    return licences(device, out);
}

/* ---- the place in a rack ---- */

static nvmlReturn_t small(int gpu, const char *path, unsigned char *out) {
    long long value;
    nvmlReturn_t code = sim_number(gpu, path, &value);
    if (code == NVML_SUCCESS)
        *out = (unsigned char)value;
    return code;
}

EXPORT nvmlReturn_t nvmlDeviceGetPlatformInfo(nvmlDevice_t device, nvmlPlatformInfo_t *out) {
    char text[GPUSIM_TEXT];
    ON_GPU(out);
    if (out->version != nvmlPlatformInfo_v2)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    *out = (nvmlPlatformInfo_t){.version = nvmlPlatformInfo_v2};
    if ((code = sim_text(gpu, "platformInfo/chassis_serial_number", text, sizeof text)) != NVML_SUCCESS ||
        (code = small(gpu, "platformInfo/slot_number", &out->slotNumber)) != NVML_SUCCESS ||
        (code = small(gpu, "platformInfo/tray_index", &out->trayIndex)) != NVML_SUCCESS ||
        (code = small(gpu, "platformInfo/host_id", &out->hostId)) != NVML_SUCCESS ||
        (code = small(gpu, "platformInfo/module_id", &out->moduleId)) != NVML_SUCCESS)
        return code;
    snprintf((char *)out->chassisSerialNumber, sizeof out->chassisSerialNumber, "%.15s", text);
    if ((code = sim_text(gpu, "platformInfo/peer_type", text, sizeof text)) == NVML_SUCCESS)
        out->peerType = !strcmp(text, "Switch Connected");
    return code;
}

EXPORT nvmlReturn_t nvmlDeviceGetPdi(nvmlDevice_t device, nvmlPdi_t *out) {
    char text[GPUSIM_TEXT];
    ON_GPU(out);
    if (out->version != nvmlPdi_v1)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if ((code = sim_text(gpu, "pdi", text, sizeof text)) == NVML_SUCCESS)
        out->value = strtoull(text, NULL, 16);
    return code;
}

EXPORT nvmlReturn_t nvmlDeviceGetAddressingMode(nvmlDevice_t device, nvmlDeviceAddressingMode_t *out) {
    static const char *const names[] = {"None", "HMM", "ATS"};
    ON_GPU(out);
    if (out->version != nvmlDeviceAddressingMode_v1)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    return sim_name(gpu, "addressing_mode", names, 3, &out->value);
}

/* ---- clocks that can be set ---- */

static nvmlReturn_t memory_clock(int gpu, unsigned int number, unsigned int *out) {
    char path[GPUSIM_TEXT];
    long long value;
    snprintf(path, sizeof path, "supported_clocks/supported_mem_clock[%u]/value", number);
    nvmlReturn_t code = sim_number(gpu, path, &value);
    if (code == NVML_SUCCESS)
        *out = (unsigned int)value;
    return code;
}

EXPORT nvmlReturn_t nvmlDeviceGetSupportedMemoryClocks(nvmlDevice_t device, unsigned int *count, unsigned int *out) {
    unsigned int found = 0, clock;
    ON_GPU(count);
    while ((code = memory_clock(gpu, found, &clock)) == NVML_SUCCESS) {
        if (out && found < *count)
            out[found] = clock;
        found++;
    }
    if (code != NVML_ERROR_NOT_SUPPORTED || found == 0)
        return code;
    code = found > *count || !out ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
    *count = found;
    return code;
}

EXPORT nvmlReturn_t nvmlDeviceGetSupportedGraphicsClocks(nvmlDevice_t device, unsigned int memory, unsigned int *count,
                                                         unsigned int *out) {
    unsigned int group = 0, found = 0, clock;
    ON_GPU(count);
    while ((code = memory_clock(gpu, group, &clock)) == NVML_SUCCESS && clock != memory)
        group++;
    if (code != NVML_SUCCESS)
        return code == NVML_ERROR_NOT_SUPPORTED && group ? NVML_ERROR_NOT_FOUND : code;
    for (;; found++) {
        char path[GPUSIM_TEXT];
        long long value;
        snprintf(path, sizeof path, "supported_clocks/supported_mem_clock[%u]/supported_graphics_clock[%u]", group, found);
        if (sim_number(gpu, path, &value) != NVML_SUCCESS)
            break;
        if (out && found < *count)
            out[found] = (unsigned int)value;
    }
    code = found > *count || !out ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
    *count = found;
    return code;
}

/* ---- MIG: a GPU can be in the mode, but nobody has cut it up ---- */

EXPORT nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *count) {
    unsigned int current;
    ON_GPU(count);
    if ((code = sim_flag(gpu, "mig_mode/current_mig", &current)) == NVML_SUCCESS)
        *count = 7;
    return code == NVML_ERROR_NOT_SUPPORTED ? (*count = 0, NVML_SUCCESS) : code;
}

EXPORT nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index, nvmlDevice_t *out) {
    (void)index;
    ON_GPU(out);
    return NVML_ERROR_NOT_FOUND;
}
