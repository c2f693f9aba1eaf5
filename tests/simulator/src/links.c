/* Copyright (c) 2026, The gpufleet authors
 * GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * Between GPUs: NVLink, fabric, topology, peer access. What nvidia-smi -q -x lacks stands under "sim/".
 */
#include "gpusim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- NVLink ---- */

static nvmlReturn_t link_path(int gpu, unsigned int link, const char *name, char *path, size_t size) {
    long long count;
    nvmlReturn_t code = sim_number(gpu, "sim/nvlink/count", &count);
    if (code != NVML_SUCCESS || count == 0)
        return code != NVML_SUCCESS ? code : NVML_ERROR_NOT_SUPPORTED;
    snprintf(path, size, "sim/nvlink/%u/%s", link, name);
    return link < (unsigned long long)count ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

EXPORT nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned int link, nvmlEnableState_t *active) {
    char path[64];
    unsigned int value;
    ON_GPU(active);
    if ((code = link_path(gpu, link, "state", path, sizeof path)) == NVML_SUCCESS &&
        (code = sim_flag(gpu, path, &value)) == NVML_SUCCESS)
        *active = (nvmlEnableState_t)value;
    return code;
}

EXPORT nvmlReturn_t nvmlDeviceGetNvLinkVersion(nvmlDevice_t device, unsigned int link, unsigned int *version) {
    static const char *const names[] = {NULL, "1.0", "2.0", "2.2", "3.0", "3.1", "4.0", "5.0", "6.0"};
    char path[64];
    ON_GPU(version);
    if ((code = link_path(gpu, link, "version", path, sizeof path)) == NVML_SUCCESS)
        code = sim_name(gpu, "sim/nvlink/version", names, sizeof names / sizeof *names, version);
    return code;
}

EXPORT nvmlReturn_t nvmlDeviceGetNvLinkCapability(nvmlDevice_t device, unsigned int link,
                                                  nvmlNvLinkCapability_t capability, unsigned int *out) {
    char path[64];
    ON_GPU(out);
    if ((code = link_path(gpu, link, "state", path, sizeof path)) == NVML_SUCCESS)
        *out = capability != NVML_NVLINK_CAP_SLI_BRIDGE;
    return code;
}

/* "switch 0000:c5:00.0", "gpu 0000:1b:00.0", or "switch -" where it has no address on this bus */
static nvmlReturn_t remote_of(int gpu, unsigned int link, char *kind, char *address) {
    char path[64], text[GPUSIM_TEXT];
    nvmlReturn_t code = link_path(gpu, link, "remote", path, sizeof path);
    if (code == NVML_SUCCESS)
        code = sim_text(gpu, path, text, sizeof text);
    if (code != NVML_SUCCESS)
        return code;
    return sscanf(text, "%15s %31s", kind, address) == 2 ? NVML_SUCCESS : NVML_ERROR_UNKNOWN;
}

EXPORT nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned int link, nvmlPciInfo_t *pci) {
    char kind[16], address[32];
    ON_GPU(pci);
    code = remote_of(gpu, link, kind, address);
    if (code == NVML_SUCCESS && address[0] == '-')
        return NVML_ERROR_NOT_SUPPORTED;
    return code == NVML_SUCCESS ? sim_pci(address, 0, 0, pci) : code;
}

EXPORT nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo(nvmlDevice_t device, unsigned int link, nvmlPciInfo_t *pci) {
    return nvmlDeviceGetNvLinkRemotePciInfo_v2(device, link, pci);
}

EXPORT nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t device, unsigned int link,
                                                        nvmlIntNvLinkDeviceType_t *type) {
    char kind[16], address[32];
    ON_GPU(type);
    if ((code = remote_of(gpu, link, kind, address)) == NVML_SUCCESS)
        *type = !strcmp(kind, "gpu")      ? NVML_NVLINK_DEVICE_TYPE_GPU
                : !strcmp(kind, "switch") ? NVML_NVLINK_DEVICE_TYPE_SWITCH
                                          : NVML_NVLINK_DEVICE_TYPE_UNKNOWN;
    return code;
}

EXPORT nvmlReturn_t nvmlDeviceGetNvLinkErrorCounter(nvmlDevice_t device, unsigned int link,
                                                    nvmlNvLinkErrorCounter_t counter, unsigned long long *out) {
    static const char *const names[] = {"replay", "recovery", "crc_flit", "crc_data", "ecc_data"};
    char path[64];
    long long value;
    ON_GPU(out);
    if ((unsigned int)counter >= sizeof names / sizeof *names)
        return NVML_ERROR_INVALID_ARGUMENT;
    if ((code = link_path(gpu, link, names[counter], path, sizeof path)) == NVML_SUCCESS &&
        (code = sim_number(gpu, path, &value)) == NVML_SUCCESS)
        *out = (unsigned long long)value;
    return code;
}

EXPORT nvmlReturn_t nvmlDeviceGetC2cModeInfoV(nvmlDevice_t device, nvmlC2cModeInfo_v1_t *out) {
    ON_GPU(out);
    return sim_flag(gpu, "c2c_mode", &out->isC2cEnabled);
}

/* ---- fabric ---- */

static unsigned int health_field(int gpu, const char *name, const char *const *names, unsigned int count) {
    char path[64];
    unsigned int value = 0;
    snprintf(path, sizeof path, "fabric/health/%s", name);
    sim_name(gpu, path, names, count, &value);
    return value;
}

static unsigned int health_mask(int gpu) {
    static const char *const truth[] = {NULL, "True", "False"};
    static const char *const bandwidth[] = {NULL, "Degraded", "Full"};
    static const char *const configuration[] = {
        NULL, "None", "Incorrect SysGUID", "Incorrect Chassis S/N", "No Partition", "Insufficient NVLinks",
        "Incompatible GPU firmware", "Invalid Location", "GPU State Invalid"};
    return health_field(gpu, "bandwidth", bandwidth, 3) << NVML_GPU_FABRIC_HEALTH_MASK_SHIFT_DEGRADED_BW |
           health_field(gpu, "route_recovery_in_progress", truth, 3) << NVML_GPU_FABRIC_HEALTH_MASK_SHIFT_ROUTE_RECOVERY |
           health_field(gpu, "route_unhealthy", truth, 3) << NVML_GPU_FABRIC_HEALTH_MASK_SHIFT_ROUTE_UNHEALTHY |
           health_field(gpu, "access_timeout_recovery", truth, 3)
               << NVML_GPU_FABRIC_HEALTH_MASK_SHIFT_ACCESS_TIMEOUT_RECOVERY |
           health_field(gpu, "incorrect_configuration", configuration, 9)
               << NVML_GPU_FABRIC_HEALTH_MASK_SHIFT_INCORRECT_CONFIGURATION |
           health_field(gpu, "partition_assigned", truth, 3) << NVML_GPU_FABRIC_HEALTH_MASK_SHIFT_PARTITION_ASSIGNED;
}

static nvmlReturn_t fabric(int gpu, nvmlGpuFabricInfo_v3_t *out) {
    static const char *const states[] = {"Not Supported", "Not Started", "In Progress", "Completed"};
    static const char *const summaries[] = {NULL, "Healthy", "Unhealthy", "Limited Capacity"};
    char text[GPUSIM_TEXT];
    unsigned int state = 0;
    long long clique;
    nvmlReturn_t code = sim_name(gpu, "fabric/state", states, 4, &state);
    if (code != NVML_SUCCESS)
        return code;
    *out = (nvmlGpuFabricInfo_v3_t){.state = (nvmlGpuFabricState_t)state};
    code = sim_text(gpu, "fabric/status", text, sizeof text);
    if (code == NVML_SUCCESS)
        out->status = sim_error_code(text);
    if (code != NVML_SUCCESS && code != NVML_ERROR_NOT_SUPPORTED)
        out->status = code; /* a status such as "Unknown Error" is the field's value */
    if (sim_number(gpu, "fabric/cliqueId", &clique) == NVML_SUCCESS)
        out->cliqueId = (unsigned int)clique;
    if (sim_text(gpu, "fabric/clusterUuid", text, sizeof text) == NVML_SUCCESS) {
        const char *digit = text;
        for (int at = 0; at < NVML_GPU_FABRIC_UUID_LEN; at++, digit += 2) {
            unsigned int byte = 0;
            digit += strspn(digit, "-");
            sscanf(digit, "%2x", &byte);
            out->clusterUuid[at] = (unsigned char)byte;
        }
    }
    out->healthMask = health_mask(gpu);
    state = 0;
    sim_name(gpu, "fabric/health/summary", summaries, 4, &state);
    out->healthSummary = (unsigned char)state;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuFabricInfo(nvmlDevice_t device, nvmlGpuFabricInfo_t *out) {
    nvmlGpuFabricInfo_v3_t all = {0};
    ON_GPU(out);
    if ((code = fabric(gpu, &all)) != NVML_SUCCESS)
        return code;
    memcpy(out->clusterUuid, all.clusterUuid, sizeof out->clusterUuid);
    out->status = all.status;
    out->cliqueId = all.cliqueId;
    out->state = all.state;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t device, nvmlGpuFabricInfoV_t *out) {
    nvmlGpuFabricInfo_v3_t all = {0};
    char driver[GPUSIM_TEXT] = "";
    ON_GPU(out);
    sim_raw(GPUSIM_GLOBAL, "driver_version", driver, sizeof driver);
    /* version 3 came with driver 580 */
    if (out->version != nvmlGpuFabricInfo_v2 && (out->version != nvmlGpuFabricInfo_v3 || atoi(driver) < 580))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if ((code = fabric(gpu, &all)) != NVML_SUCCESS)
        return code;
    all.version = out->version;
    /* version 2 is version 3 without its last field */
    memcpy(out, &all,
           out->version == nvmlGpuFabricInfo_v2 ? offsetof(nvmlGpuFabricInfo_v3_t, healthSummary) : sizeof all);
    return NVML_SUCCESS;
}

/* ---- topology ---- */

static nvmlReturn_t between(int gpu, int other, const char *what, const char *const *names, unsigned int count,
                            unsigned int *out) {
    char path[64];
    snprintf(path, sizeof path, "sim/%s/%d", what, other);
    return sim_name(gpu, path, names, count, out);
}

static nvmlReturn_t ancestor(int gpu, int other, nvmlGpuTopologyLevel_t *out) {
    static const char *const names[] = {"X", "PIX", "PXB", "PHB", "NODE", "SYS"};
    unsigned int level;
    nvmlReturn_t code = between(gpu, other, "topology", names, 6, &level);
    if (code == NVML_SUCCESS)
        *out = (nvmlGpuTopologyLevel_t)(level * 10);
    return code;
}

EXPORT nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t device, nvmlDevice_t second,
                                                        nvmlGpuTopologyLevel_t *level) {
    int other;
    ON_GPU(level);
    code = sim_begin(second, &other);
    return code == NVML_SUCCESS ? ancestor(gpu, other, level) : code;
}

EXPORT nvmlReturn_t nvmlDeviceGetTopologyNearestGpus(nvmlDevice_t device, nvmlGpuTopologyLevel_t level,
                                                     unsigned int *count, nvmlDevice_t *out) {
    nvmlDevice_t shown[GPUSIM_MAX_GPUS];
    unsigned int found = 0, room;
    ON_GPU(count);
    room = out ? *count : 0;
    unsigned int all = sim_devices(shown);
    for (unsigned int at = 0; at < all; at++) {
        nvmlGpuTopologyLevel_t here;
        if (shown[at]->gpu == gpu || ancestor(gpu, shown[at]->gpu, &here) != NVML_SUCCESS || here != level)
            continue;
        if (found < room)
            out[found] = shown[at];
        found++;
    }
    *count = found;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t device, nvmlDevice_t second, nvmlGpuP2PCapsIndex_t index,
                                           nvmlGpuP2PStatus_t *out) {
    static const char *const names[] = {"OK", "CNS", "GNS", "TNS", "DR", "NS", "U"};
    char what[32];
    unsigned int status;
    int other;
    ON_GPU(out);
    if ((code = sim_begin(second, &other)) != NVML_SUCCESS)
        return code;
    if (gpu == other || (unsigned int)index >= NVML_P2P_CAPS_INDEX_UNKNOWN)
        return NVML_ERROR_INVALID_ARGUMENT;
    snprintf(what, sizeof what, index == NVML_P2P_CAPS_INDEX_NVLINK ? "p2p_nvlink" : "p2p");
    if ((code = between(gpu, other, what, names, 7, &status)) == NVML_SUCCESS)
        *out = (nvmlGpuP2PStatus_t)status;
    return code;
}

/* ---- place in the host ---- */

/* "0-55,112-167" into a bit mask of words. */
static void read_cpus(const char *text, unsigned int words, unsigned long *out) {
    memset(out, 0, words * sizeof *out);
    while (*text) {
        char *end;
        unsigned long first = strtoul(text, &end, 10), last = *end == '-' ? strtoul(end + 1, &end, 10) : first;
        for (unsigned long cpu = first; cpu <= last && cpu / (8 * sizeof *out) < words; cpu++)
            out[cpu / (8 * sizeof *out)] |= 1UL << cpu % (8 * sizeof *out);
        if (end == text)
            return;
        text = end + strspn(end, ",");
    }
}

EXPORT nvmlReturn_t nvmlDeviceGetCpuAffinity(nvmlDevice_t device, unsigned int words, unsigned long *out) {
    char text[GPUSIM_TEXT];
    ON_GPU(out);
    if ((code = sim_text(gpu, "sim/cpus", text, sizeof text)) == NVML_SUCCESS)
        read_cpus(text, words, out);
    return code;
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryAffinity(nvmlDevice_t device, unsigned int words, unsigned long *out,
                                                nvmlAffinityScope_t scope) {
    char text[GPUSIM_TEXT] = "";
    (void)scope;
    ON_GPU(out);
    if ((code = sim_text(gpu, "sim/numa_node", text, sizeof text)) == NVML_SUCCESS && text[0] != '-')
        read_cpus(text, words, out);
    return text[0] == '-' ? NVML_ERROR_NOT_SUPPORTED : code;
}
