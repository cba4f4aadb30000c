/*
 * The part of NVIDIA's NVML interface that the mock serves: numbers and struct layouts, as the public documentation
 * and the nvidia-ml-py bindings give them. Only what is answered is declared.
 */
#ifndef FLEETWELL_NVML_H
#define FLEETWELL_NVML_H

#include <stdint.h>

typedef int nvmlReturn_t;
typedef struct device *nvmlDevice_t;

enum {
    NVML_SUCCESS = 0,
    NVML_ERROR_UNINITIALIZED = 1,
    NVML_ERROR_INVALID_ARGUMENT = 2,
    NVML_ERROR_NOT_SUPPORTED = 3,
    NVML_ERROR_NOT_FOUND = 6,
    NVML_ERROR_INSUFFICIENT_SIZE = 7,
    NVML_ERROR_DRIVER_NOT_LOADED = 9,
    NVML_ERROR_GPU_IS_LOST = 15,
    NVML_ERROR_OPERATING_SYSTEM = 17,
    NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25,
    NVML_ERROR_UNKNOWN = 999
};

enum { NVML_VALUE_UNSIGNED_INT = 1, NVML_VALUE_UNSIGNED_LONG_LONG = 3, NVML_VALUE_SIGNED_INT = 5 };

typedef struct {
    char bus_id_legacy[16];
    unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
    char bus_id[32];
} nvmlPciInfo_t;

typedef struct {
    unsigned long long total, free, used;
} nvmlMemory_t;

typedef struct {
    unsigned version;
    unsigned long long total, reserved, free, used;
} nvmlMemory_v2_t;

typedef struct {
    unsigned long long l1_cache, l2_cache, device_memory, register_file;
} nvmlEccErrorCounts_t;

typedef struct {
    unsigned max, high, partial, low, none;
} nvmlRowRemapperHistogramValues_t;

typedef struct {
    uint32_t field_id, scope_id;
    int64_t timestamp, latency_us;
    int value_type;
    nvmlReturn_t result;
    union {
        double d;
        unsigned ui;
        unsigned long long ull;
        int si;
    } value;
} nvmlFieldValue_t;

typedef struct {
    unsigned char cluster_uuid[16];
    nvmlReturn_t status;
    uint32_t clique_id;
    unsigned char state;
} nvmlGpuFabricInfo_t;

typedef struct { /* version 2 ends before health_summary */
    unsigned version;
    unsigned char cluster_uuid[16];
    nvmlReturn_t status;
    uint32_t clique_id;
    unsigned char state;
    uint32_t health_mask;
    unsigned char health_summary;
} nvmlGpuFabricInfoV_t;

typedef struct {
    unsigned pid;
    unsigned long long used_gpu_memory;
    unsigned gpu_instance_id, compute_instance_id;
} nvmlProcessInfo_t;

typedef struct {
    unsigned version;
    unsigned long long aggregate_unc_parity, aggregate_unc_secded, aggregate_cor;
    unsigned long long volatile_unc_parity, volatile_unc_secded, volatile_cor;
    unsigned long long bucket_l2, bucket_sm, bucket_pcie, bucket_mcu, bucket_other;
    unsigned threshold_exceeded;
} nvmlEccSramErrorStatus_t;

typedef struct {
    unsigned version;
    int sensor;
    int temperature;
} nvmlTemperature_t;

typedef struct {
    unsigned version;
    int margin;
} nvmlMarginTemperature_t;

typedef struct {
    unsigned gpu, memory;
} nvmlUtilization_t;

_Static_assert(sizeof(nvmlPciInfo_t) == 68, "layout of nvmlPciInfo_t");
_Static_assert(sizeof(nvmlMemory_v2_t) == 0x28, "layout of nvmlMemory_v2_t");
_Static_assert(sizeof(nvmlGpuFabricInfoV_t) == 0x28, "layout of nvmlGpuFabricInfo_v3_t");
_Static_assert(sizeof(nvmlEccSramErrorStatus_t) == 0x68, "layout of nvmlEccSramErrorStatus_v1_t");
_Static_assert(sizeof(nvmlFieldValue_t) == 40, "layout of nvmlFieldValue_t");
_Static_assert(sizeof(nvmlProcessInfo_t) == 24, "layout of nvmlProcessInfo_v2_t");

#endif
