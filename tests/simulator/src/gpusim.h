/* Copyright (c) 2026, The gpufleet authors
 * GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * A simulated libnvidia-ml.so.1: what the files of the library share.
 *
 * A scenario is a list of lines "KEY<TAB>VALUE". A key is the path of an element of `nvidia-smi -q -x`
 * ("driver_version", "gpu/0/temperature/gpu_temp") or of something which that output lacks ("gpu/0/sim/numa_node").
 * A value is the text that nvidia-smi prints, or says how a call behaves; see scenario.c.
 */
#ifndef GPUSIM_H
#define GPUSIM_H

#define NVML_NO_UNVERSIONED_FUNC_DEFS
#include <nvml.h>
#include <stddef.h>

#define GPUSIM_MAX_GPUS 256
#define GPUSIM_TEXT 512
#define GPUSIM_GLOBAL (-1)

struct nvmlDevice_st {
    int gpu; /* number in the scenario, which also counts GPUs that NVML does not show */
};

/* Everything but our calls stays out of the symbol table. */
#define EXPORT __attribute__((visibility("default")))

/* scenario.c: what a key says now. Each returns an NVML code; a path may name alternatives, "a|b": the first that is
 * supported counts. Numbers come in NVML's units: bytes, milliwatts, MHz, degrees. */
nvmlReturn_t sim_text(int gpu, const char *path, char *out, size_t size);
nvmlReturn_t sim_number(int gpu, const char *path, long long *out);
nvmlReturn_t sim_flag(int gpu, const char *path, unsigned int *out);
nvmlReturn_t sim_name(int gpu, const char *path, const char *const *names, unsigned int count, unsigned int *out);
nvmlReturn_t sim_format(int gpu, char *out, size_t size, const char *format, ...) __attribute__((format(printf, 4, 5)));
nvmlReturn_t sim_store(int gpu, const char *path, const char *value);
nvmlReturn_t sim_raw(int gpu, const char *path, char *out, size_t size); /* no delay, no count, no error */

/* library.c: a call's common beginning. */
nvmlReturn_t sim_begin(nvmlDevice_t device, int *gpu);
nvmlReturn_t sim_may_write(nvmlDevice_t device, int *gpu);
nvmlReturn_t sim_string(int gpu, const char *path, char *out, unsigned int size);
nvmlReturn_t sim_pci(const char *bus_id, long long device_id, long long subsystem_id, nvmlPciInfo_t *pci);
unsigned int sim_devices(nvmlDevice_t *devices); /* those that NVML shows, in its order */
nvmlDevice_t sim_device(int gpu);
const char *sim_error_text(nvmlReturn_t code); /* as nvidia-smi prints it in place of a value */
nvmlReturn_t sim_error_code(const char *text); /* of what is so printed, NVML_SUCCESS for a value */

/* Begins a call on one GPU: `gpu` is its number, `code` the result. */
#define ON_GPU(...)                                                                                                    \
    int gpu;                                                                                                           \
    nvmlReturn_t code = sim_begin(device, &gpu);                                                                       \
    const void *needed[] = {__VA_ARGS__};                                                                              \
    for (size_t at = 0; code == NVML_SUCCESS && at < sizeof needed / sizeof *needed; at++)                             \
        if (!needed[at])                                                                                               \
            code = NVML_ERROR_INVALID_ARGUMENT;                                                                        \
    if (code != NVML_SUCCESS)                                                                                          \
        return code

#endif
