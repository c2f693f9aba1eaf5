/* Copyright (c) 2026, The gpufleet authors
 * GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * Setters. What they set lasts: it goes to the state file. Only root may, as with the real library.
 */
#include "gpusim.h"

#include <stdio.h>
#include <string.h>

#define SETTER()                                                                                                       \
    int gpu;                                                                                                           \
    nvmlReturn_t code = sim_may_write(device, &gpu);                                                                   \
    if (code != NVML_SUCCESS)                                                                                          \
    return code

static const char *on_off(unsigned int on) { return on ? "Enabled" : "Disabled"; }

/* Nothing that the GPU does not have can be set. */
static nvmlReturn_t set_text(int gpu, const char *path, const char *value) {
    char text[GPUSIM_TEXT];
    nvmlReturn_t code = sim_text(gpu, path, text, sizeof text);
    return code == NVML_SUCCESS ? sim_store(gpu, path, value) : code;
}

static nvmlReturn_t set_power(nvmlDevice_t device, unsigned int milliwatts) {
    char text[32];
    unsigned int min, max;
    SETTER();
    code = nvmlDeviceGetPowerManagementLimitConstraints(device, &min, &max);
    if (code == NVML_SUCCESS && (milliwatts < min || milliwatts > max))
        code = NVML_ERROR_INVALID_ARGUMENT;
    if (code != NVML_SUCCESS)
        return code;
    snprintf(text, sizeof text, "%u.%02u W", milliwatts / 1000, milliwatts % 1000 / 10);
    if ((code = set_text(gpu, "gpu_power_readings/current_power_limit", text)) == NVML_SUCCESS)
        code = set_text(gpu, "gpu_power_readings/requested_power_limit", text);
    return code == NVML_ERROR_NOT_SUPPORTED ? set_text(gpu, "power_readings/power_limit", text) : code;
}

EXPORT nvmlReturn_t nvmlDeviceSetPowerManagementLimit(nvmlDevice_t device, unsigned int limit) {
    return set_power(device, limit);
}

EXPORT nvmlReturn_t nvmlDeviceSetPowerManagementLimit_v2(nvmlDevice_t device, nvmlPowerValue_v2_t *power) {
    if (!power)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (power->version != nvmlPowerValue_v2)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    return power->powerScope == NVML_POWER_SCOPE_GPU ? set_power(device, power->powerValueMw)
                                                     : NVML_ERROR_NOT_SUPPORTED;
}

EXPORT nvmlReturn_t nvmlDeviceSetPersistenceMode(nvmlDevice_t device, nvmlEnableState_t mode) {
    SETTER();
    return set_text(gpu, "persistence_mode", on_off(mode));
}

EXPORT nvmlReturn_t nvmlDeviceSetEccMode(nvmlDevice_t device, nvmlEnableState_t mode) {
    SETTER();
    return set_text(gpu, "ecc_mode/pending_ecc", on_off(mode)); /* the next reset makes it current */
}

EXPORT nvmlReturn_t nvmlDeviceClearEccErrorCounts(nvmlDevice_t device, nvmlEccCounterType_t counter) {
    static const char *const names[] = {"sram_correctable",          "sram_uncorrectable", "sram_uncorrectable_parity",
                                        "sram_uncorrectable_secded", "dram_correctable",   "dram_uncorrectable"};
    nvmlReturn_t any = NVML_ERROR_NOT_SUPPORTED;
    SETTER();
    for (size_t at = 0; at < sizeof names / sizeof *names; at++) {
        char path[GPUSIM_TEXT];
        snprintf(path, sizeof path, "ecc_errors/%s/%s", counter == NVML_VOLATILE_ECC ? "volatile" : "aggregate", names[at]);
        any = set_text(gpu, path, "0") == NVML_SUCCESS ? NVML_SUCCESS : any;
    }
    return any;
}

/* Since Hopper without a reset. */
EXPORT nvmlReturn_t nvmlDeviceSetMigMode(nvmlDevice_t device, unsigned int mode, nvmlReturn_t *activation) {
    nvmlDeviceArchitecture_t architecture;
    SETTER();
    if (!activation || mode > 1)
        return NVML_ERROR_INVALID_ARGUMENT;
    if ((code = set_text(gpu, "mig_mode/pending_mig", on_off(mode))) != NVML_SUCCESS)
        return code;
    int at_once = nvmlDeviceGetArchitecture(device, &architecture) == NVML_SUCCESS &&
                  architecture >= NVML_DEVICE_ARCH_HOPPER;
    *activation = at_once ? NVML_SUCCESS : NVML_ERROR_RESET_REQUIRED;
    return at_once ? set_text(gpu, "mig_mode/current_mig", on_off(mode)) : NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceSetComputeMode(nvmlDevice_t device, nvmlComputeMode_t mode) {
    static const char *const names[] = {"Default", NULL, "Prohibited", "Exclusive_Process"};
    SETTER();
    if ((unsigned int)mode >= sizeof names / sizeof *names || !names[mode])
        return NVML_ERROR_INVALID_ARGUMENT;
    return set_text(gpu, "compute_mode", names[mode]);
}

EXPORT nvmlReturn_t nvmlDeviceSetApplicationsClocks(nvmlDevice_t device, unsigned int memory, unsigned int graphics) {
    char text[32];
    SETTER();
    snprintf(text, sizeof text, "%u MHz", graphics);
    if ((code = set_text(gpu, "applications_clocks/graphics_clock", text)) != NVML_SUCCESS)
        return code;
    snprintf(text, sizeof text, "%u MHz", memory);
    return set_text(gpu, "applications_clocks/mem_clock", text);
}

static nvmlReturn_t lock_clocks(nvmlDevice_t device, const char *path, unsigned int min, unsigned int max) {
    char text[64] = "@unsupported";
    SETTER();
    if (min > max)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (max)
        snprintf(text, sizeof text, "%u,%u", min, max);
    return sim_store(gpu, path, text);
}

EXPORT nvmlReturn_t nvmlDeviceSetGpuLockedClocks(nvmlDevice_t device, unsigned int min, unsigned int max) {
    return lock_clocks(device, "sim/locked_clocks", min, max);
}
EXPORT nvmlReturn_t nvmlDeviceResetGpuLockedClocks(nvmlDevice_t device) {
    return lock_clocks(device, "sim/locked_clocks", 0, 0);
}
EXPORT nvmlReturn_t nvmlDeviceSetMemoryLockedClocks(nvmlDevice_t device, unsigned int min, unsigned int max) {
    return lock_clocks(device, "sim/locked_memory_clocks", min, max);
}
EXPORT nvmlReturn_t nvmlDeviceResetMemoryLockedClocks(nvmlDevice_t device) {
    return lock_clocks(device, "sim/locked_memory_clocks", 0, 0);
}

/* ---- for nvidia-smi and gpusim-set beside this library ---- */

/* What nvidia-smi prints for an element: its text, or that of its error. */
EXPORT nvmlReturn_t gpusim_text(int gpu, const char *path, char *out, size_t size) {
    char state[GPUSIM_TEXT];
    nvmlReturn_t code = gpu == GPUSIM_GLOBAL ? NVML_SUCCESS : sim_text(gpu, "sim/device", state, sizeof state);
    if (code == NVML_SUCCESS)
        code = sim_text(gpu, path, out, size);
    if (code != NVML_SUCCESS)
        snprintf(out, size, "%s", sim_error_text(code) ? sim_error_text(code) : "ERR!");
    return code;
}

EXPORT nvmlReturn_t gpusim_set(int gpu, const char *path, const char *value) { return sim_store(gpu, path, value); }
