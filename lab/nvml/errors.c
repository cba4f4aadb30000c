/* NVML's calls about errors: ECC, row remapping, retired pages, and the numbered fields. */
#include "entry.h"

#include <string.h>
#include <time.h>

#define AMPERE 7U

static unsigned long long ecc(const struct device *d, unsigned kind, unsigned counter)
{
    return counter == 0 ? d->ecc_volatile[kind] : d->ecc_aggregate[kind];
}

EXPORT nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t handle, int *now, int *pending)
{
    struct device *d;
    nvmlReturn_t result = enter_device(handle, &d);
    if (result != NVML_SUCCESS) {
        return result;
    }
    *now = *pending = 1;
    return leave(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t handle, unsigned kind, unsigned counter, unsigned long long *value)
{
    struct device *d;
    nvmlReturn_t result = enter_device(handle, &d);
    if (result != NVML_SUCCESS) {
        return result;
    }
    if (kind > 1 || counter > 1) {
        return leave(NVML_ERROR_INVALID_ARGUMENT);
    }
    *value = ecc(d, kind, counter);
    return leave(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetDetailedEccErrors(nvmlDevice_t handle, unsigned kind, unsigned counter, nvmlEccErrorCounts_t *counts)
{
    memset(counts, 0, sizeof *counts);
    return nvmlDeviceGetTotalEccErrors(handle, kind, counter, &counts->device_memory);
}

/* The mock counts errors of device memory (location 2) only; the other locations that the hardware has are clean. */
EXPORT nvmlReturn_t nvmlDeviceGetMemoryErrorCounter(nvmlDevice_t handle, unsigned kind, unsigned counter, unsigned location,
                                                    unsigned long long *value)
{
    nvmlReturn_t result = nvmlDeviceGetTotalEccErrors(handle, kind, counter, value);
    if (result == NVML_SUCCESS && location != 2) {
        *value = 0;
    }
    return result;
}

EXPORT nvmlReturn_t nvmlDeviceGetSramEccErrorStatus(nvmlDevice_t handle, nvmlEccSramErrorStatus_t *status)
{
    struct device *d;
    nvmlReturn_t result = enter_device(handle, &d);
    if (result != NVML_SUCCESS) {
        return result;
    }
    if (status->version != 0x01000068U) {
        return leave(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    }
    memset(status, 0, sizeof *status);
    status->version = 0x01000068U;
    if (d->sram_threshold_exceeded) {
        status->aggregate_unc_secded = status->bucket_sm = 4;
        status->threshold_exceeded = 1;
    }
    return leave(NVML_SUCCESS);
}

/* Row remapping cannot be asked while MIG instances exist (facts of the driver, not of the memory). */
static bool rows_known(const struct device *d)
{
    return d->row_remap_supported && d->architecture >= AMPERE && d->mig != 1;
}

EXPORT nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t handle, unsigned *corrected, unsigned *uncorrected, unsigned *pending,
                                              unsigned *failed)
{
    struct device *d;
    nvmlReturn_t result = enter_device(handle, &d);
    if (result != NVML_SUCCESS) {
        return result;
    }
    if (!rows_known(d)) {
        return leave(NVML_ERROR_NOT_SUPPORTED);
    }
    *corrected = d->rows_corrected;
    *uncorrected = d->rows_uncorrected;
    *pending = d->rows_pending;
    *failed = d->rows_failed;
    return leave(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetRowRemapperHistogram(nvmlDevice_t handle, nvmlRowRemapperHistogramValues_t *banks)
{
    struct device *d;
    nvmlReturn_t result = enter_device(handle, &d);
    if (result != NVML_SUCCESS) {
        return result;
    }
    if (!rows_known(d)) {
        return leave(NVML_ERROR_NOT_SUPPORTED);
    }
    unsigned spent = d->rows_failed != 0 ? 1 : 0;
    *banks = (nvmlRowRemapperHistogramValues_t){.max = 640 - spent, .none = spent};
    return leave(NVML_SUCCESS);
}

/* Pages were retired before Ampere; since then rows are remapped, and the driver says so by NOT_SUPPORTED. */
EXPORT nvmlReturn_t nvmlDeviceGetRetiredPages(nvmlDevice_t handle, unsigned cause, unsigned *count, unsigned long long *addresses)
{
    (void)cause;
    (void)addresses;
    struct device *d;
    nvmlReturn_t result = enter_device(handle, &d);
    if (result != NVML_SUCCESS) {
        return result;
    }
    *count = 0;
    return leave(d->architecture >= AMPERE ? NVML_ERROR_NOT_SUPPORTED : NVML_SUCCESS);
}

static void put_unsigned(nvmlFieldValue_t *field, unsigned value)
{
    field->value_type = NVML_VALUE_UNSIGNED_INT;
    field->value.ui = value;
}

static void put_signed(nvmlFieldValue_t *field, int value)
{
    field->value_type = NVML_VALUE_SIGNED_INT;
    field->value.si = value;
}

static void put_long(nvmlFieldValue_t *field, unsigned long long value)
{
    field->value_type = NVML_VALUE_UNSIGNED_LONG_LONG;
    field->value.ull = value;
}

static unsigned long long link_total(const struct device *d, unsigned counter)
{
    unsigned long long sum = 0;
    for (unsigned link = 0; link < d->links; link++) {
        sum += d->link_errors[link][counter];
    }
    return sum;
}

static nvmlReturn_t link_field(const struct device *d, nvmlFieldValue_t *field)
{
    if (field->scope_id >= d->links) {
        return d->links == 0 ? NVML_ERROR_NOT_SUPPORTED : NVML_ERROR_INVALID_ARGUMENT;
    }
    switch (field->field_id) {
    case 161: put_long(field, d->link_errors[field->scope_id][0]); break;
    case 162: put_long(field, d->link_errors[field->scope_id][1]); break;
    case 163: put_long(field, d->link_errors[field->scope_id][2]); break;
    default: put_unsigned(field, d->link_active[field->scope_id]); break;
    }
    return NVML_SUCCESS;
}

static nvmlReturn_t row_field(const struct device *d, nvmlFieldValue_t *field)
{
    if (!rows_known(d)) {
        return NVML_ERROR_NOT_SUPPORTED;
    }
    const unsigned rows[] = {d->rows_corrected, d->rows_uncorrected, d->rows_pending, d->rows_failed};
    put_unsigned(field, rows[field->field_id - 142]);
    return NVML_SUCCESS;
}

static nvmlReturn_t recovery_field(const struct device *d, nvmlFieldValue_t *field)
{
    if (d->recovery_action < 0) {
        return NVML_ERROR_NOT_SUPPORTED;
    }
    put_unsigned(field, (unsigned)d->recovery_action);
    return NVML_SUCCESS;
}

static nvmlReturn_t one_field(const struct device *d, nvmlFieldValue_t *field)
{
    switch (field->field_id) {
    case 1: case 2: put_unsigned(field, 1); break;             /* ECC mode, current and pending */
    case 3: put_long(field, d->ecc_volatile[0]); break;
    case 4: put_long(field, d->ecc_volatile[1]); break;
    case 5: put_long(field, d->ecc_aggregate[0]); break;
    case 6: put_long(field, d->ecc_aggregate[1]); break;
    case 38: put_long(field, link_total(d, 2)); break;         /* CRC flit errors, all links */
    case 45: put_long(field, link_total(d, 3)); break;         /* CRC data errors, all links */
    case 52: put_long(field, link_total(d, 0)); break;         /* replays, all links */
    case 59: put_long(field, link_total(d, 1)); break;         /* recoveries, all links */
    case 82: put_unsigned(field, (unsigned)d->memory_temperature); break;
    case 91: put_unsigned(field, d->links); break;
    case 94: put_unsigned(field, d->pcie_replays); break;
    case 142: case 143: case 144: case 145: return row_field(d, field);
    case 161: case 162: case 163: case 165: return link_field(d, field);
    case 185: case 186: put_unsigned(field, d->power_mw); break;
    case 190: put_unsigned(field, d->power_limit_mw); break;
    case 193: put_signed(field, d->slowdown_temperature - d->shutdown_temperature - 2); break; /* T.Limit of shutdown */
    case 194: put_signed(field, -2); break;                    /* T.Limit of slowdown, as H100 reports it */
    case 196: put_signed(field, 0); break;                     /* T.Limit of the highest GPU temperature allowed */
    case 226: put_unsigned(field, d->recovery_action == 1); break;
    case 227: put_unsigned(field, d->recovery_action == 4); break;
    case 230: return recovery_field(d, field);
    default: return NVML_ERROR_NOT_SUPPORTED;
    }
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t handle, int count, nvmlFieldValue_t *fields)
{
    struct device *d;
    nvmlReturn_t result = enter_device(handle, &d);
    if (result != NVML_SUCCESS) {
        return result;
    }
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    for (int i = 0; i < count; i++) {
        fields[i].timestamp = (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
        fields[i].latency_us = 0;
        fields[i].result = one_field(d, &fields[i]);
    }
    return leave(NVML_SUCCESS);
}
