/* NVML's calls about the library and the system, and the ways to a device handle. */
#include "entry.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

static nvmlReturn_t copy_text(char *into, unsigned size, const char *value)
{
    if (into == NULL) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    if (strlen(value) >= size) {
        return NVML_ERROR_INSUFFICIENT_SIZE;
    }
    strcpy(into, value);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlInitWithFlags(unsigned flags)
{
    (void)flags;
    nvmlReturn_t result = enter_init();
    return result == NVML_SUCCESS ? leave(NVML_SUCCESS) : result;
}

EXPORT nvmlReturn_t nvmlInit_v2(void) { return nvmlInitWithFlags(0); }

EXPORT nvmlReturn_t nvmlShutdown(void)
{
    nvmlReturn_t result = enter();
    if (result != NVML_SUCCESS) {
        return result;
    }
    count_shutdown();
    return leave(NVML_SUCCESS);
}

EXPORT const char *nvmlErrorString(nvmlReturn_t result)
{
    static const char *const texts[] = {
        "Success", "Uninitialized", "Invalid Argument", "Not Supported", "Insufficient Permissions", "Already Initialized",
        "Not Found", "Insufficient Size", "Insufficient External Power", "Driver Not Loaded", "Timeout", "Interrupt Request Issue",
        "NVML Shared Library Not Found", "Function Not Found", "Corrupted infoROM", "GPU is lost", "GPU requires reset",
        "The operating system has blocked the request", "RM has detected an NVML/RM version mismatch", "In use by another client",
        "Insufficient Memory", "No data", "vGPU ECC is not supported", "Insufficient Resources", "Frequency is not supported",
        "Argument version mismatch"};
    if (result >= 0 && (size_t)result < sizeof texts / sizeof texts[0]) {
        return texts[result];
    }
    return "Unknown Error";
}

EXPORT nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned length)
{
    nvmlReturn_t result = enter();
    return result == NVML_SUCCESS ? leave(copy_text(version, length, current.driver_version)) : result;
}

EXPORT nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned length)
{
    nvmlReturn_t result = enter();
    return result == NVML_SUCCESS ? leave(copy_text(version, length, current.nvml_version)) : result;
}

EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version)
{
    nvmlReturn_t result = enter();
    if (result != NVML_SUCCESS) {
        return result;
    }
    *version = current.cuda_version;
    return leave(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version) { return nvmlSystemGetCudaDriverVersion(version); }

/* NVML numbers the GPUs that were enumerated in PCI order; those that are absent leave no gap. */
static struct device *enumerated(unsigned wanted)
{
    for (unsigned i = 0; i < MAX_DEVICES; i++) {
        struct device *d = &current.device[i];
        if (d->described && !d->absent && wanted-- == 0) {
            return d;
        }
    }
    return NULL;
}

static unsigned device_count(void)
{
    unsigned found = 0;
    while (enumerated(found) != NULL) {
        found++;
    }
    return current.count < 0 ? found : (unsigned)current.count;
}

static nvmlReturn_t hand_out(struct device *d, nvmlDevice_t *handle)
{
    if (d == NULL) {
        return NVML_ERROR_NOT_FOUND;
    }
    if (d->lost) {
        return NVML_ERROR_GPU_IS_LOST;
    }
    if (d->error != 0) {
        return d->error;
    }
    *handle = d;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count)
{
    nvmlReturn_t result = enter();
    if (result != NVML_SUCCESS) {
        return result;
    }
    *count = device_count();
    return leave(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *handle)
{
    nvmlReturn_t result = enter();
    if (result != NVML_SUCCESS) {
        return result;
    }
    struct device *d = index < device_count() ? enumerated(index) : NULL;
    return leave(d == NULL ? NVML_ERROR_INVALID_ARGUMENT : hand_out(d, handle));
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *handle)
{
    nvmlReturn_t result = enter();
    if (result != NVML_SUCCESS) {
        return result;
    }
    struct device *d = NULL;
    for (unsigned i = 0; (d = enumerated(i)) != NULL && strcmp(d->uuid, uuid) != 0; i++) {
    }
    return leave(hand_out(d, handle));
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nvmlDevice_t *handle)
{
    nvmlReturn_t result = enter();
    if (result != NVML_SUCCESS) {
        return result;
    }
    unsigned domain = 0;
    unsigned bus = 0;
    unsigned slot = 0;
    if (sscanf(bus_id, "%x:%x:%x", &domain, &bus, &slot) != 3) {
        domain = 0;
        if (sscanf(bus_id, "%x:%x", &bus, &slot) != 2) {
            return leave(NVML_ERROR_INVALID_ARGUMENT);
        }
    }
    struct device *d = NULL;
    for (unsigned i = 0; (d = enumerated(i)) != NULL && (d->domain != domain || d->bus != bus || d->slot != slot); i++) {
    }
    return leave(hand_out(d, handle));
}

EXPORT nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t handle, unsigned *index)
{
    struct device *d;
    nvmlReturn_t result = enter_device(handle, &d);
    if (result != NVML_SUCCESS) {
        return result;
    }
    for (*index = 0; enumerated(*index) != d; (*index)++) {
    }
    return leave(NVML_SUCCESS);
}

#define TEXT_GETTER(function, member)                                                                                            \
    EXPORT nvmlReturn_t function(nvmlDevice_t handle, char *value, unsigned length)                                              \
    {                                                                                                                            \
        struct device *d;                                                                                                        \
        nvmlReturn_t result = enter_device(handle, &d);                                                                          \
        return result == NVML_SUCCESS ? leave(copy_text(value, length, d->member)) : result;                                     \
    }

TEXT_GETTER(nvmlDeviceGetName, name)
TEXT_GETTER(nvmlDeviceGetUUID, uuid)
TEXT_GETTER(nvmlDeviceGetSerial, serial)
TEXT_GETTER(nvmlDeviceGetVbiosVersion, vbios)
