/* Copyright (c) 2026, The gpufleet authors
 * GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * Calls that answer one element with one value: a table.
 */
#include "gpusim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXT(function, path)                                                                                           \
    EXPORT nvmlReturn_t function(nvmlDevice_t device, char *out, unsigned int length) {                                \
        ON_GPU(out);                                                                                                   \
        return sim_string(gpu, path, out, length);                                                                     \
    }

#define NUMBER(function, path)                                                                                         \
    EXPORT nvmlReturn_t function(nvmlDevice_t device, unsigned int *out) {                                             \
        long long value;                                                                                               \
        ON_GPU(out);                                                                                                   \
        if ((code = sim_number(gpu, path, &value)) == NVML_SUCCESS)                                                    \
            *out = (unsigned int)value;                                                                                \
        return code;                                                                                                   \
    }

#define NAME(function, type, path, ...)                                                                                \
    EXPORT nvmlReturn_t function(nvmlDevice_t device, type *out) {                                                     \
        static const char *const names[] = {__VA_ARGS__};                                                              \
        unsigned int value;                                                                                            \
        ON_GPU(out);                                                                                                   \
        if ((code = sim_name(gpu, path, names, sizeof names / sizeof *names, &value)) == NVML_SUCCESS)                 \
            *out = (type)value;                                                                                        \
        return code;                                                                                                   \
    }

#define FLAG(function, type, path)                                                                                     \
    EXPORT nvmlReturn_t function(nvmlDevice_t device, type *out) {                                                     \
        unsigned int value;                                                                                            \
        ON_GPU(out);                                                                                                   \
        if ((code = sim_flag(gpu, path, &value)) == NVML_SUCCESS)                                                      \
            *out = (type)value;                                                                                        \
        return code;                                                                                                   \
    }

#define TWO_FLAGS(function, type, current_path, pending_path)                                                          \
    EXPORT nvmlReturn_t function(nvmlDevice_t device, type *current, type *pending) {                                  \
        unsigned int now, then;                                                                                        \
        ON_GPU(current, pending);                                                                                      \
        if ((code = sim_flag(gpu, current_path, &now)) != NVML_SUCCESS ||                                              \
            (code = sim_flag(gpu, pending_path, &then)) != NVML_SUCCESS)                                               \
            return code;                                                                                               \
        *current = (type)now;                                                                                          \
        *pending = (type)then;                                                                                         \
        return code;                                                                                                   \
    }

/* identity */
TEXT(nvmlDeviceGetName, "product_name")
TEXT(nvmlDeviceGetUUID, "uuid")
TEXT(nvmlDeviceGetSerial, "serial")
TEXT(nvmlDeviceGetVbiosVersion, "vbios_version")
TEXT(nvmlDeviceGetBoardPartNumber, "board_part_number")
TEXT(nvmlDeviceGetInforomImageVersion, "inforom_version/img_version")
NUMBER(nvmlDeviceGetBoardId, "board_id")
NUMBER(nvmlDeviceGetMinorNumber, "minor_number")
NUMBER(nvmlDeviceGetModuleId, "platformInfo/module_id")
NUMBER(nvmlDeviceGetNumaNodeId, "sim/gpu_numa_node")
FLAG(nvmlDeviceGetMultiGpuBoard, unsigned int, "multigpu_board")
FLAG(nvmlDeviceGetDisplayMode, nvmlEnableState_t, "display_attached|display_mode")
FLAG(nvmlDeviceGetDisplayActive, nvmlEnableState_t, "display_active")
NAME(nvmlDeviceGetArchitecture, nvmlDeviceArchitecture_t, "product_architecture", NULL, NULL, "Kepler", "Maxwell",
     "Pascal", "Volta", "Turing", "Ampere", "Ada Lovelace", "Hopper", "Blackwell")

/* modes */
FLAG(nvmlDeviceGetPersistenceMode, nvmlEnableState_t, "persistence_mode")
FLAG(nvmlDeviceGetAccountingMode, nvmlEnableState_t, "accounting_mode")
NAME(nvmlDeviceGetComputeMode, nvmlComputeMode_t, "compute_mode", "Default", "Exclusive_Thread", "Prohibited",
     "Exclusive_Process")
TWO_FLAGS(nvmlDeviceGetEccMode, nvmlEnableState_t, "ecc_mode/current_ecc", "ecc_mode/pending_ecc")
TWO_FLAGS(nvmlDeviceGetMigMode, unsigned int, "mig_mode/current_mig", "mig_mode/pending_mig")
NAME(nvmlDeviceGetVirtualizationMode, nvmlGpuVirtualizationMode_t, "gpu_virtualization_mode/virtualization_mode",
     "None", "Pass-Through", "VGPU", "Host VGPU", "Host VSGA")

/* power, heat, clocks */
NUMBER(nvmlDeviceGetPowerUsage,
       "gpu_power_readings/average_power_draw|gpu_power_readings/instant_power_draw|"
       "gpu_power_readings/power_draw|power_readings/power_draw")
NUMBER(nvmlDeviceGetEnforcedPowerLimit,
       "gpu_power_readings/current_power_limit|power_readings/enforced_power_limit|power_readings/power_limit")
NUMBER(nvmlDeviceGetPowerManagementLimit, "gpu_power_readings/requested_power_limit|power_readings/power_limit")
NUMBER(nvmlDeviceGetPowerManagementDefaultLimit,
       "gpu_power_readings/default_power_limit|power_readings/default_power_limit")
NAME(nvmlDeviceGetPerformanceState, nvmlPstates_t, "performance_state", "P0", "P1", "P2", "P3", "P4", "P5", "P6", "P7",
     "P8", "P9", "P10", "P11", "P12", "P13", "P14", "P15")
NAME(nvmlDeviceGetPowerState, nvmlPstates_t, "performance_state", "P0", "P1", "P2", "P3", "P4", "P5", "P6", "P7", "P8",
     "P9", "P10", "P11", "P12", "P13", "P14", "P15")
NUMBER(nvmlDeviceGetFanSpeed, "fan_speed")
NUMBER(nvmlDeviceGetNumFans, "sim/fans")

/* PCIe */
NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, "pci/pci_gpu_link_info/pcie_gen/current_link_gen")
NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, "pci/pci_gpu_link_info/pcie_gen/max_link_gen")
NUMBER(nvmlDeviceGetGpuMaxPcieLinkGeneration, "pci/pci_gpu_link_info/pcie_gen/max_device_link_gen")
NUMBER(nvmlDeviceGetCurrPcieLinkWidth, "pci/pci_gpu_link_info/link_widths/current_link_width")
NUMBER(nvmlDeviceGetMaxPcieLinkWidth, "pci/pci_gpu_link_info/link_widths/max_link_width")
NUMBER(nvmlDeviceGetPcieReplayCounter, "pci/replay_counter")

/* retirement */
FLAG(nvmlDeviceGetRetiredPagesPendingStatus, nvmlEnableState_t,
     "retired_pages/pending_retirement|retired_pages/pending_blacklist")

EXPORT nvmlReturn_t nvmlDeviceGetBrand(nvmlDevice_t device, nvmlBrandType_t *type) {
    static const char *const names[] = {
        [NVML_BRAND_UNKNOWN] = "Unknown",       [NVML_BRAND_QUADRO] = "Quadro",         [NVML_BRAND_TESLA] = "Tesla",
        [NVML_BRAND_GEFORCE] = "GeForce",       [NVML_BRAND_TITAN] = "Titan",           [NVML_BRAND_NVIDIA] = "NVIDIA",
        [NVML_BRAND_QUADRO_RTX] = "Quadro RTX", [NVML_BRAND_NVIDIA_RTX] = "NVIDIA RTX",
    };
    unsigned int value;
    ON_GPU(type);
    if ((code = sim_name(gpu, "product_brand", names, sizeof names / sizeof *names, &value)) == NVML_SUCCESS)
        *type = (nvmlBrandType_t)value;
    return code;
}

EXPORT nvmlReturn_t nvmlDeviceGetFanSpeed_v2(nvmlDevice_t device, unsigned int fan, unsigned int *speed) {
    unsigned int fans;
    nvmlReturn_t code = nvmlDeviceGetNumFans(device, &fans);
    if (code == NVML_SUCCESS && fan >= fans)
        return fans ? NVML_ERROR_INVALID_ARGUMENT : NVML_ERROR_NOT_SUPPORTED;
    return code == NVML_SUCCESS ? nvmlDeviceGetFanSpeed(device, speed) : code;
}

EXPORT nvmlReturn_t nvmlDeviceGetInforomVersion(nvmlDevice_t device, nvmlInforomObject_t object, char *version,
                                                unsigned int length) {
    static const char *const paths[] = {"inforom_version/oem_object", "inforom_version/ecc_object",
                                        "inforom_version/pwr_object"};
    ON_GPU(version);
    if ((unsigned int)object >= sizeof paths / sizeof *paths)
        return NVML_ERROR_NOT_SUPPORTED;
    return sim_string(gpu, paths[object], version, length);
}

EXPORT nvmlReturn_t nvmlDeviceValidateInforom(nvmlDevice_t device) {
    unsigned int valid;
    ON_GPU(device);
    code = sim_flag(gpu, "sim/inforom_valid", &valid);
    return code == NVML_SUCCESS && !valid ? NVML_ERROR_CORRUPTED_INFOROM : code;
}

EXPORT nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor) {
    char text[GPUSIM_TEXT];
    ON_GPU(major, minor);
    if ((code = sim_text(gpu, "sim/compute_capability", text, sizeof text)) != NVML_SUCCESS)
        return code;
    return sscanf(text, "%d.%d", major, minor) == 2 ? NVML_SUCCESS : NVML_ERROR_UNKNOWN;
}

EXPORT nvmlReturn_t nvmlDeviceGetGspFirmwareVersion(nvmlDevice_t device, char *version) {
    ON_GPU(version);
    return sim_string(gpu, "gsp_firmware_version", version, NVML_GSP_FIRMWARE_VERSION_BUF_SIZE);
}

EXPORT nvmlReturn_t nvmlDeviceGetGspFirmwareMode(nvmlDevice_t device, unsigned int *enabled, unsigned int *by_default) {
    char text[GPUSIM_TEXT];
    ON_GPU(enabled, by_default);
    code = sim_text(gpu, "gsp_firmware_version", text, sizeof text);
    *enabled = *by_default = code == NVML_SUCCESS;
    return code == NVML_ERROR_NOT_SUPPORTED ? NVML_SUCCESS : code;
}

EXPORT nvmlReturn_t nvmlDeviceGetPowerManagementMode(nvmlDevice_t device, nvmlEnableState_t *mode) {
    long long limit;
    ON_GPU(mode);
    code = sim_number(gpu, "gpu_power_readings/current_power_limit|power_readings/power_limit", &limit);
    *mode = code == NVML_SUCCESS ? NVML_FEATURE_ENABLED : NVML_FEATURE_DISABLED;
    return code == NVML_ERROR_NOT_SUPPORTED ? NVML_SUCCESS : code;
}

EXPORT nvmlReturn_t nvmlDeviceGetPowerManagementLimitConstraints(nvmlDevice_t device, unsigned int *min,
                                                                 unsigned int *max) {
    long long low, high;
    ON_GPU(min, max);
    if ((code = sim_number(gpu, "gpu_power_readings/min_power_limit|power_readings/min_power_limit", &low)) ||
        (code = sim_number(gpu, "gpu_power_readings/max_power_limit|power_readings/max_power_limit", &high)))
        return code;
    *min = (unsigned int)low;
    *max = (unsigned int)high;
    return code;
}

EXPORT nvmlReturn_t nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t device, unsigned long long *energy) {
    long long value;
    ON_GPU(energy);
    if ((code = sim_number(gpu, "sim/energy", &value)) == NVML_SUCCESS)
        *energy = (unsigned long long)value;
    return code;
}

/* ---- temperatures ---- */

static nvmlReturn_t temperature(int gpu, nvmlTemperatureSensors_t sensor, long long *out) {
    return sensor == NVML_TEMPERATURE_GPU ? sim_number(gpu, "temperature/gpu_temp", out) : NVML_ERROR_INVALID_ARGUMENT;
}

EXPORT nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, nvmlTemperatureSensors_t sensor, unsigned int *out) {
    long long value;
    ON_GPU(out);
    if ((code = temperature(gpu, sensor, &value)) == NVML_SUCCESS)
        *out = (unsigned int)value;
    return code;
}

EXPORT nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t device, nvmlTemperature_t *out) {
    long long value;
    ON_GPU(out);
    if (out->version != nvmlTemperature_v1)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if ((code = temperature(gpu, out->sensorType, &value)) == NVML_SUCCESS)
        out->temperature = (int)value;
    return code;
}

EXPORT nvmlReturn_t nvmlDeviceGetMarginTemperature(nvmlDevice_t device, nvmlMarginTemperature_t *out) {
    long long value;
    ON_GPU(out);
    if (out->version != nvmlMarginTemperature_v1)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if ((code = sim_number(gpu, "temperature/gpu_temp_tlimit", &value)) == NVML_SUCCESS)
        out->marginTemperature = (int)value;
    return code;
}

EXPORT nvmlReturn_t nvmlDeviceGetTemperatureThreshold(nvmlDevice_t device, nvmlTemperatureThresholds_t type,
                                                      unsigned int *out) {
    static const char *const paths[] = {
        [NVML_TEMPERATURE_THRESHOLD_SHUTDOWN] = "temperature/gpu_temp_max_threshold",
        [NVML_TEMPERATURE_THRESHOLD_SLOWDOWN] = "temperature/gpu_temp_slow_threshold",
        [NVML_TEMPERATURE_THRESHOLD_MEM_MAX] = "temperature/gpu_temp_max_mem_threshold",
        [NVML_TEMPERATURE_THRESHOLD_GPU_MAX] = "temperature/gpu_temp_max_gpu_threshold",
        [NVML_TEMPERATURE_THRESHOLD_ACOUSTIC_MIN] = "supported_gpu_target_temp/gpu_target_temp_min",
        [NVML_TEMPERATURE_THRESHOLD_ACOUSTIC_CURR] = "temperature/gpu_target_temperature",
        [NVML_TEMPERATURE_THRESHOLD_ACOUSTIC_MAX] = "supported_gpu_target_temp/gpu_target_temp_max",
    };
    long long value;
    ON_GPU(out);
    if ((unsigned int)type >= sizeof paths / sizeof *paths)
        return NVML_ERROR_INVALID_ARGUMENT;
    if ((code = sim_number(gpu, paths[type], &value)) == NVML_SUCCESS)
        *out = (unsigned int)value;
    return code;
}

/* ---- clocks ---- */

static nvmlReturn_t clock_of(nvmlDevice_t device, const char *group, nvmlClockType_t type, unsigned int *out) {
    static const char *const names[] = {"graphics_clock", "sm_clock", "mem_clock", "video_clock"};
    char path[GPUSIM_TEXT];
    long long value;
    ON_GPU(out);
    if ((unsigned int)type >= sizeof names / sizeof *names)
        return NVML_ERROR_INVALID_ARGUMENT;
    snprintf(path, sizeof path, "%s/%s", group, names[type]);
    if ((code = sim_number(gpu, path, &value)) == NVML_SUCCESS)
        *out = (unsigned int)value;
    return code;
}

#define CLOCK(function, group)                                                                                         \
    EXPORT nvmlReturn_t function(nvmlDevice_t device, nvmlClockType_t type, unsigned int *out) {                       \
        return clock_of(device, group, type, out);                                                                     \
    }

CLOCK(nvmlDeviceGetClockInfo, "clocks")
CLOCK(nvmlDeviceGetMaxClockInfo, "max_clocks")
CLOCK(nvmlDeviceGetApplicationsClock, "applications_clocks")
CLOCK(nvmlDeviceGetDefaultApplicationsClock, "default_applications_clocks")
CLOCK(nvmlDeviceGetMaxCustomerBoostClock, "max_customer_boost_clocks")

static nvmlReturn_t event_reasons(nvmlDevice_t device, int supported, unsigned long long *out) {
    static const struct {
        const char *name;
        unsigned long long bit;
    } reasons[] = {
        {"gpu_idle", nvmlClocksEventReasonGpuIdle},
        {"applications_clocks_setting", nvmlClocksEventReasonApplicationsClocksSetting},
        {"sw_power_cap", nvmlClocksEventReasonSwPowerCap},
        {"hw_slowdown", nvmlClocksThrottleReasonHwSlowdown},
        {"sync_boost", nvmlClocksEventReasonSyncBoost},
        {"sw_thermal_slowdown", nvmlClocksEventReasonSwThermalSlowdown},
        {"hw_thermal_slowdown", nvmlClocksThrottleReasonHwThermalSlowdown},
        {"hw_power_brake_slowdown", nvmlClocksThrottleReasonHwPowerBrakeSlowdown},
        {"display_clocks_setting", nvmlClocksEventReasonDisplayClockSetting},
    };
    unsigned long long mask = 0;
    ON_GPU(out);
    nvmlReturn_t last = NVML_ERROR_NOT_SUPPORTED;
    for (size_t at = 0; at < sizeof reasons / sizeof *reasons; at++) {
        char path[GPUSIM_TEXT];
        unsigned int active = 0;
        snprintf(path, sizeof path,
                 "clocks_event_reasons/clocks_event_reason_%s|clocks_throttle_reasons/clocks_throttle_reason_%s",
                 reasons[at].name, reasons[at].name);
        code = sim_flag(gpu, path, &active);
        if (code == NVML_SUCCESS)
            mask |= active || supported ? reasons[at].bit : 0;
        else if (code != NVML_ERROR_NOT_SUPPORTED)
            return code;
        last = code == NVML_SUCCESS ? code : last;
    }
    *out = mask;
    return last;
}

EXPORT nvmlReturn_t nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t device, unsigned long long *reasons) {
    return event_reasons(device, 0, reasons);
}
EXPORT nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t device, unsigned long long *reasons) {
    return event_reasons(device, 0, reasons);
}
EXPORT nvmlReturn_t nvmlDeviceGetSupportedClocksEventReasons(nvmlDevice_t device, unsigned long long *reasons) {
    return event_reasons(device, 1, reasons);
}
EXPORT nvmlReturn_t nvmlDeviceGetSupportedClocksThrottleReasons(nvmlDevice_t device, unsigned long long *reasons) {
    return event_reasons(device, 1, reasons);
}
