/* Copyright (c) 2026, The gpufleet authors
 * GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * nvmlDeviceGetFieldValues: a table from field to element. Of fields by link, the scope is the link.
 */
#include "gpusim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum kind { COUNT, SIGNED, YES_NO, MICROSECONDS, CALL };

static nvmlReturn_t ecc_total(int gpu, unsigned int field, long long *out) {
    unsigned long long value = 0;
    int aggregate = field == NVML_FI_DEV_ECC_SBE_AGG_TOTAL || field == NVML_FI_DEV_ECC_DBE_AGG_TOTAL;
    int uncorrected = field == NVML_FI_DEV_ECC_DBE_VOL_TOTAL || field == NVML_FI_DEV_ECC_DBE_AGG_TOTAL;
    nvmlReturn_t code = nvmlDeviceGetTotalEccErrors(
        sim_device(gpu), uncorrected ? NVML_MEMORY_ERROR_TYPE_UNCORRECTED : NVML_MEMORY_ERROR_TYPE_CORRECTED,
        aggregate ? NVML_AGGREGATE_ECC : NVML_VOLATILE_ECC, &value);
    *out = (long long)value;
    return code;
}

static nvmlReturn_t recovery_action(int gpu, unsigned int field, long long *out) {
    static const char *const names[] = {"None",      "Reset", "Reboot", "Drain P2P", "Drain and Reset", "Recover IMEX Domain",
                                        "Bus Reset", "System Reboot"};
    unsigned int value = 0;
    (void)field;
    nvmlReturn_t code = sim_name(gpu, "gpu_recovery_action", names, sizeof names / sizeof *names, &value);
    *out = value;
    return code;
}

/* Links are counted by what connects them and whether they are up. */
static nvmlReturn_t switch_links(int gpu, unsigned int field, long long *out) {
    long long count;
    (void)field;
    nvmlReturn_t code = sim_number(gpu, "sim/nvlink/count", &count);
    *out = 0;
    for (long long link = 0; code == NVML_SUCCESS && link < count; link++) {
        nvmlIntNvLinkDeviceType_t type = NVML_NVLINK_DEVICE_TYPE_UNKNOWN;
        nvmlDeviceGetNvLinkRemoteDeviceType(sim_device(gpu), (unsigned int)link, &type);
        *out += type == NVML_NVLINK_DEVICE_TYPE_SWITCH;
    }
    return code;
}

static nvmlReturn_t crc_total(int gpu, unsigned int field, long long *out) {
    long long count, value;
    const char *name = field == NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL   ? "crc_flit"
                       : field == NVML_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL ? "crc_data"
                       : field == NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL   ? "replay"
                                                                                : "recovery";
    nvmlReturn_t code = sim_number(gpu, "sim/nvlink/count", &count);
    *out = 0;
    for (long long link = 0; code == NVML_SUCCESS && link < count; link++) {
        char path[64];
        snprintf(path, sizeof path, "sim/nvlink/%lld/%s", link, name);
        if ((code = sim_number(gpu, path, &value)) == NVML_SUCCESS)
            *out += value;
    }
    return code;
}

#define LINK_FIELD(field, name) {field, COUNT, "sim/nvlink/%u/" name, NULL}

static const struct field {
    unsigned int id;
    enum kind kind;
    const char *path; /* with %u for the scope */
    nvmlReturn_t (*call)(int gpu, unsigned int field, long long *out);
} table[] = {
    {NVML_FI_DEV_ECC_CURRENT, YES_NO, "ecc_mode/current_ecc", NULL},
    {NVML_FI_DEV_ECC_PENDING, YES_NO, "ecc_mode/pending_ecc", NULL},
    {NVML_FI_DEV_ECC_SBE_VOL_TOTAL, CALL, NULL, ecc_total},
    {NVML_FI_DEV_ECC_DBE_VOL_TOTAL, CALL, NULL, ecc_total},
    {NVML_FI_DEV_ECC_SBE_AGG_TOTAL, CALL, NULL, ecc_total},
    {NVML_FI_DEV_ECC_DBE_AGG_TOTAL, CALL, NULL, ecc_total},
    {NVML_FI_DEV_ECC_SBE_VOL_DEV, COUNT, "ecc_errors/volatile/dram_correctable", NULL},
    {NVML_FI_DEV_ECC_DBE_VOL_DEV, COUNT, "ecc_errors/volatile/dram_uncorrectable", NULL},
    {NVML_FI_DEV_ECC_SBE_AGG_DEV, COUNT, "ecc_errors/aggregate/dram_correctable", NULL},
    {NVML_FI_DEV_ECC_DBE_AGG_DEV, COUNT, "ecc_errors/aggregate/dram_uncorrectable", NULL},
    {NVML_FI_DEV_RETIRED_SBE, COUNT, "retired_pages/multiple_single_bit_retirement/retired_count", NULL},
    {NVML_FI_DEV_RETIRED_DBE, COUNT, "retired_pages/double_bit_retirement/retired_count", NULL},
    {NVML_FI_DEV_RETIRED_PENDING, YES_NO, "retired_pages/pending_retirement|retired_pages/pending_blacklist", NULL},
    {NVML_FI_DEV_REMAPPED_COR, COUNT, "remapped_rows/remapped_row_corr", NULL},
    {NVML_FI_DEV_REMAPPED_UNC, COUNT, "remapped_rows/remapped_row_unc", NULL},
    {NVML_FI_DEV_REMAPPED_PENDING, YES_NO, "remapped_rows/remapped_row_pending", NULL},
    {NVML_FI_DEV_REMAPPED_FAILURE, YES_NO, "remapped_rows/remapped_row_failure", NULL},
    {NVML_FI_DEV_REMAPPED_ROWS_COR_INACTIVE, COUNT, "remapped_rows/remapped_row_corr_inactive", NULL},
    {NVML_FI_DEV_REMAPPED_ROWS_UNC_INACTIVE, COUNT, "remapped_rows/remapped_row_unc_inactive", NULL},
    {NVML_FI_DEV_MEMORY_TEMP, SIGNED, "temperature/memory_temp", NULL},
    {NVML_FI_DEV_TEMPERATURE_SHUTDOWN_TLIMIT, SIGNED, "temperature/gpu_temp_max_tlimit_threshold", NULL},
    {NVML_FI_DEV_TEMPERATURE_SLOWDOWN_TLIMIT, SIGNED, "temperature/gpu_temp_slow_tlimit_threshold", NULL},
    {NVML_FI_DEV_TEMPERATURE_MEM_MAX_TLIMIT, SIGNED, "temperature/gpu_temp_max_mem_tlimit_threshold", NULL},
    {NVML_FI_DEV_TEMPERATURE_GPU_MAX_TLIMIT, SIGNED, "temperature/gpu_temp_max_gpu_tlimit_threshold", NULL},
    {NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION, COUNT, "sim/energy", NULL},
    {NVML_FI_DEV_ENERGY, COUNT, "sim/energy", NULL},
    /* scope 0 is the GPU, 1 the module, 2 the memory: see power_path */
    {NVML_FI_DEV_POWER_AVERAGE, COUNT, "average_power_draw", NULL},
    {NVML_FI_DEV_POWER_INSTANT, COUNT, "instant_power_draw", NULL},
    {NVML_FI_DEV_POWER_MIN_LIMIT, COUNT, "min_power_limit", NULL},
    {NVML_FI_DEV_POWER_MAX_LIMIT, COUNT, "max_power_limit", NULL},
    {NVML_FI_DEV_POWER_DEFAULT_LIMIT, COUNT, "default_power_limit", NULL},
    {NVML_FI_DEV_POWER_CURRENT_LIMIT, COUNT, "current_power_limit", NULL},
    {NVML_FI_DEV_POWER_REQUESTED_LIMIT, COUNT, "requested_power_limit", NULL},
    {NVML_FI_DEV_PCIE_REPLAY_COUNTER, COUNT, "pci/replay_counter", NULL},
    {NVML_FI_DEV_PCIE_REPLAY_ROLLOVER_COUNTER, COUNT, "pci/replay_rollover_counter", NULL},
    {NVML_FI_DEV_PCIE_COUNT_CORRECTABLE_ERRORS, COUNT, "sim/pcie/correctable_errors", NULL},
    {NVML_FI_DEV_PCIE_COUNT_NON_FATAL_ERROR, COUNT, "sim/pcie/non_fatal_errors", NULL},
    {NVML_FI_DEV_PCIE_COUNT_FATAL_ERROR, COUNT, "sim/pcie/fatal_errors", NULL},
    {NVML_FI_DEV_GET_GPU_RECOVERY_ACTION, CALL, NULL, recovery_action},
    {NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_POWER_CAP, MICROSECONDS, "sw_power_cap", NULL},
    {NVML_FI_DEV_CLOCKS_EVENT_REASON_SYNC_BOOST, MICROSECONDS, "sync_boost", NULL},
    {NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN, MICROSECONDS, "sw_therm_slowdown", NULL},
    {NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN, MICROSECONDS, "hw_therm_slowdown", NULL},
    {NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN, MICROSECONDS, "hw_power_brake", NULL},
    {NVML_FI_DEV_NVLINK_LINK_COUNT, COUNT, "sim/nvlink/count", NULL},
    {NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON, COUNT, "sim/nvlink/speed", NULL},
    {NVML_FI_DEV_NVLINK_GET_STATE, YES_NO, "sim/nvlink/%u/state", NULL},
    {NVML_FI_DEV_NVLINK_GET_SPEED, COUNT, "sim/nvlink/%u/speed", NULL},
    {NVML_FI_DEV_NVSWITCH_CONNECTED_LINK_COUNT, CALL, NULL, switch_links},
    {NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL, CALL, NULL, crc_total},
    {NVML_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL, CALL, NULL, crc_total},
    {NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL, CALL, NULL, crc_total},
    {NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL, CALL, NULL, crc_total},
    LINK_FIELD(NVML_FI_DEV_NVLINK_ERROR_DL_REPLAY, "replay"),
    LINK_FIELD(NVML_FI_DEV_NVLINK_ERROR_DL_RECOVERY, "recovery"),
    LINK_FIELD(NVML_FI_DEV_NVLINK_ERROR_DL_CRC, "crc_flit"),
    /* NVLink 5 */
    LINK_FIELD(NVML_FI_DEV_NVLINK_COUNT_MALFORMED_PACKET_ERRORS, "malformed_packets"),
    LINK_FIELD(NVML_FI_DEV_NVLINK_COUNT_BUFFER_OVERRUN_ERRORS, "buffer_overruns"),
    LINK_FIELD(NVML_FI_DEV_NVLINK_COUNT_RCV_ERRORS, "receive_errors"),
    LINK_FIELD(NVML_FI_DEV_NVLINK_COUNT_LOCAL_LINK_INTEGRITY_ERRORS, "integrity_errors"),
    LINK_FIELD(NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_SUCCESSFUL_EVENTS, "recoveries_successful"),
    LINK_FIELD(NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS, "recoveries_failed"),
    LINK_FIELD(NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_EVENTS, "recoveries"),
    LINK_FIELD(NVML_FI_DEV_NVLINK_COUNT_EFFECTIVE_ERRORS, "effective_errors"),
    LINK_FIELD(NVML_FI_DEV_NVLINK_COUNT_EFFECTIVE_BER, "effective_ber"),
    LINK_FIELD(NVML_FI_DEV_NVLINK_COUNT_SYMBOL_ERRORS, "symbol_errors"),
    LINK_FIELD(NVML_FI_DEV_NVLINK_COUNT_SYMBOL_BER, "symbol_ber"),
};

static void path_of(const struct field *field, unsigned int scope, char *path, size_t size) {
    static const char *const modules[] = {"gpu_power_readings", "module_power_readings", "gpu_memory_power_readings"};
    size_t used = 0;
    if (field->kind == MICROSECONDS)
        used = (size_t)snprintf(path, size, "clocks_event_reasons_counters/clocks_event_reasons_counters_");
    else if (strstr(field->path, "power_") && !strchr(field->path, '/'))
        used = (size_t)snprintf(path, size, "%s/", modules[scope < 3 ? scope : 0]);
    char *hole = strstr(field->path, "%u");
    if (hole)
        snprintf(path + used, size - used, "%.*s%u%s", (int)(hole - field->path), field->path, scope, hole + 2);
    else
        snprintf(path + used, size - used, "%s", field->path);
}

/* Speeds and states of single links have fields of their own; they are the same elements. */
static const struct field *find_field(unsigned int id, unsigned int *scope) {
    if (id >= NVML_FI_DEV_NVLINK_SPEED_MBPS_L0 && id <= NVML_FI_DEV_NVLINK_SPEED_MBPS_L5) {
        *scope = id - NVML_FI_DEV_NVLINK_SPEED_MBPS_L0;
        id = NVML_FI_DEV_NVLINK_GET_SPEED;
    } else if (id >= NVML_FI_DEV_NVLINK_SPEED_MBPS_L6 && id <= NVML_FI_DEV_NVLINK_SPEED_MBPS_L11) {
        *scope = 6 + id - NVML_FI_DEV_NVLINK_SPEED_MBPS_L6;
        id = NVML_FI_DEV_NVLINK_GET_SPEED;
    }
    for (size_t at = 0; at < sizeof table / sizeof *table; at++)
        if (table[at].id == id)
            return &table[at];
    return NULL;
}

static nvmlReturn_t read_field(int gpu, nvmlFieldValue_t *value) {
    char path[GPUSIM_TEXT];
    long long number = 0;
    unsigned int flag = 0, scope = value->scopeId;
    const struct field *field = find_field(value->fieldId, &scope);
    if (value->fieldId == 0 || value->fieldId >= NVML_FI_MAX)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (!field)
        return NVML_ERROR_NOT_SUPPORTED;
    value->valueType = field->kind == SIGNED   ? NVML_VALUE_TYPE_SIGNED_INT
                       : field->kind == YES_NO ? NVML_VALUE_TYPE_UNSIGNED_INT
                                               : NVML_VALUE_TYPE_UNSIGNED_LONG_LONG;
    value->value.ullVal = 0;
    if (field->kind == CALL) {
        nvmlReturn_t code = field->call(gpu, field->id, &number);
        value->value.ullVal = (unsigned long long)number;
        return code;
    }
    path_of(field, scope, path, sizeof path);
    nvmlReturn_t code = field->kind == YES_NO ? sim_flag(gpu, path, &flag) : sim_number(gpu, path, &number);
    if (field->kind == SIGNED)
        value->value.siVal = (int)number;
    else if (field->kind == YES_NO)
        value->value.uiVal = flag;
    else
        value->value.ullVal = (unsigned long long)number * (field->kind == MICROSECONDS ? 1000 : 1); /* nanoseconds */
    return code;
}

EXPORT nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *values) {
    struct timespec now;
    ON_GPU(values);
    clock_gettime(CLOCK_REALTIME, &now);
    for (int at = 0; at < count; at++) {
        values[at].timestamp = now.tv_sec * 1000000LL + now.tv_nsec / 1000;
        values[at].latencyUsec = 0;
        values[at].nvmlReturn = read_field(gpu, &values[at]);
    }
    return NVML_SUCCESS;
}

/* The older way to the same counters, which knows a few of them. */
EXPORT nvmlReturn_t nvmlDeviceGetViolationStatus(nvmlDevice_t device, nvmlPerfPolicyType_t policy,
                                                 nvmlViolationTime_t *out) {
    static const char *const names[] = {
        [NVML_PERF_POLICY_POWER] = "sw_power_cap",
        [NVML_PERF_POLICY_THERMAL] = "sw_therm_slowdown",
        [NVML_PERF_POLICY_SYNC_BOOST] = "sync_boost",
    };
    char path[GPUSIM_TEXT];
    long long value;
    struct timespec now;
    ON_GPU(out);
    if ((unsigned int)policy >= sizeof names / sizeof *names || !names[policy])
        return NVML_ERROR_NOT_SUPPORTED;
    snprintf(path, sizeof path, "clocks_event_reasons_counters/clocks_event_reasons_counters_%s", names[policy]);
    if ((code = sim_number(gpu, path, &value)) != NVML_SUCCESS)
        return code;
    clock_gettime(CLOCK_REALTIME, &now);
    out->referenceTime = (unsigned long long)now.tv_sec * 1000000 + (unsigned long long)now.tv_nsec / 1000;
    out->violationTime = (unsigned long long)value * 1000;
    return NVML_SUCCESS;
}
