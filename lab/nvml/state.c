/* Reader of the state file: one `key value…` a line, `device INDEX key value…` for what belongs to one GPU. */
#include "state.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool text(char *into, size_t size, const char *value)
{
    size_t length = strlen(value);
    if (length >= size) {
        return false;
    }
    memcpy(into, value, length + 1);
    return true;
}

static bool number(const char **cursor, long long *into)
{
    char *end = NULL;
    errno = 0;
    *into = strtoll(*cursor, &end, 0);
    if (errno != 0 || end == *cursor) {
        return false;
    }
    *cursor = end;
    return true;
}

/* Reads exactly `wanted` numbers, separated by blanks, to the end of the line. */
static bool numbers(const char *value, long long *into, int wanted)
{
    for (int i = 0; i < wanted; i++) {
        if (!number(&value, &into[i])) {
            return false;
        }
    }
    return value[strspn(value, " ")] == '\0';
}

static bool hang_where(const char *word, enum hang_where *into)
{
    if (strcmp(word, "never") == 0) {
        *into = HANG_NEVER;
    } else if (strcmp(word, "init") == 0) {
        *into = HANG_AT_INIT;
    } else if (strcmp(word, "any") == 0) {
        *into = HANG_ANYWHERE;
    } else {
        return false;
    }
    return true;
}

static bool global_line(struct state *state, const char *key, const char *value)
{
    long long n[1];
    if (strcmp(key, "driver-version") == 0) {
        return text(state->driver_version, sizeof state->driver_version, value);
    }
    if (strcmp(key, "nvml-version") == 0) {
        return text(state->nvml_version, sizeof state->nvml_version, value);
    }
    if (strcmp(key, "hang") == 0) {
        return hang_where(value, &state->hang);
    }
    if (strcmp(key, "hang-file") == 0) {
        return text(state->hang_file, sizeof state->hang_file, value);
    }
    if (strcmp(key, "crash") == 0) {
        return hang_where(value, &state->crash);
    }
    if (!numbers(value, n, 1)) {
        return false;
    }
    if (strcmp(key, "cuda-version") == 0) {
        state->cuda_version = (int)n[0];
    } else if (strcmp(key, "init-error") == 0) {
        state->init_error = (int)n[0];
    } else if (strcmp(key, "count") == 0) {
        state->count = (int)n[0];
    } else if (strcmp(key, "latency-ms") == 0) {
        state->latency_ms = (unsigned)n[0];
    } else {
        return false;
    }
    return true;
}

static bool link_line(struct device *d, const char *key, const char *value)
{
    long long n[1 + LINK_ERRORS];
    if (strcmp(key, "nvlink") == 0) {
        if (!numbers(value, n, 2) || n[0] < 0 || n[0] >= MAX_LINKS) {
            return false;
        }
        d->link_active[n[0]] = n[1] != 0;
        if (d->links <= n[0]) {
            d->links = (unsigned)n[0] + 1;
        }
        return true;
    }
    if (!numbers(value, n, 1 + LINK_ERRORS) || n[0] < 0 || n[0] >= MAX_LINKS) {
        return false;
    }
    for (int i = 0; i < LINK_ERRORS; i++) {
        d->link_errors[n[0]][i] = (unsigned long long)n[1 + i];
    }
    return true;
}

/* The keys that carry plain numbers: where each goes, so that the reader is a table. */
#define FIELD(key, member, wanted) if (strcmp(name, key) == 0) { if (!numbers(value, n, wanted)) { return false; } member; return true; }

static bool device_line(struct device *d, const char *name, const char *value)
{
    long long n[4];
    d->described = true;
    if (strcmp(name, "uuid") == 0) {
        return text(d->uuid, sizeof d->uuid, value);
    }
    if (strcmp(name, "name") == 0) {
        return text(d->name, sizeof d->name, value);
    }
    if (strcmp(name, "serial") == 0) {
        return text(d->serial, sizeof d->serial, value);
    }
    if (strcmp(name, "vbios") == 0) {
        return text(d->vbios, sizeof d->vbios, value);
    }
    if (strcmp(name, "nvlink") == 0 || strcmp(name, "nvlink-errors") == 0) {
        return link_line(d, name, value);
    }
    if (strcmp(name, "cuda-error") == 0) {
        return true; /* read by the lab's stand-in for CUDA, see fleetwell.lab.cuda */
    }
    if (strcmp(name, "process") == 0) {
        if (!numbers(value, n, 2) || d->processes >= MAX_PROCESSES) {
            return false;
        }
        d->process[d->processes].pid = (unsigned)n[0];
        d->process[d->processes].memory_mib = (unsigned long long)n[1];
        d->processes++;
        return true;
    }
    if (strcmp(name, "pci") == 0) {
        return sscanf(value, "%x:%x:%x.0", &d->domain, &d->bus, &d->slot) == 3;
    }
    FIELD("pci-id", (d->pci_id = (unsigned)n[0], d->subsystem_id = (unsigned)n[1]), 2)
    FIELD("minor", d->minor = (unsigned)n[0], 1)
    FIELD("numa-node", d->numa_node = (unsigned)n[0], 1)
    FIELD("architecture", d->architecture = (unsigned)n[0], 1)
    FIELD("compute-capability", (d->cc_major = (unsigned)n[0], d->cc_minor = (unsigned)n[1]), 2)
    FIELD("absent", d->absent = n[0] != 0, 1)
    FIELD("lost", d->lost = n[0] != 0, 1)
    FIELD("error", d->error = (int)n[0], 1)
    FIELD("memory-mib", (d->memory_total_mib = (unsigned long long)n[0], d->memory_used_mib = (unsigned long long)n[1]), 2)
    FIELD("temperature", (d->temperature = (int)n[0], d->memory_temperature = (int)n[1]), 2)
    FIELD("temperature-limits", (d->slowdown_temperature = (int)n[0], d->shutdown_temperature = (int)n[1]), 2)
    FIELD("margin", d->margin = (int)n[0], 1)
    FIELD("power-mw", (d->power_mw = (unsigned)n[0], d->power_limit_mw = (unsigned)n[1]), 2)
    FIELD("utilization", d->utilization = (unsigned)n[0], 1)
    FIELD("clock-mhz", (d->clock_mhz = (unsigned)n[0], d->clock_max_mhz = (unsigned)n[1]), 2)
    FIELD("ecc-volatile", (d->ecc_volatile[0] = (unsigned long long)n[0], d->ecc_volatile[1] = (unsigned long long)n[1]), 2)
    FIELD("ecc-aggregate", (d->ecc_aggregate[0] = (unsigned long long)n[0], d->ecc_aggregate[1] = (unsigned long long)n[1]), 2)
    FIELD("sram-threshold", d->sram_threshold_exceeded = n[0] != 0, 1)
    FIELD("rows", (d->row_remap_supported = true, d->rows_corrected = (unsigned)n[0], d->rows_uncorrected = (unsigned)n[1],
                   d->rows_pending = (unsigned)n[2], d->rows_failed = (unsigned)n[3]), 4)
    FIELD("recovery-action", d->recovery_action = (int)n[0], 1)
    FIELD("fabric", (d->fabric_state = (unsigned)n[0], d->fabric_health = (unsigned)n[1]), 2)
    FIELD("mig", d->mig = (int)n[0], 1)
    FIELD("persistence", d->persistence = (unsigned)n[0], 1)
    FIELD("throttle", d->throttle = (unsigned long long)n[0], 1)
    FIELD("pcie", (d->pcie_gen = (unsigned)n[0], d->pcie_gen_max = (unsigned)n[1], d->pcie_width = (unsigned)n[2],
                   d->pcie_width_max = (unsigned)n[3]), 4)
    FIELD("pcie-replays", d->pcie_replays = (unsigned)n[0], 1)
    return false;
}

static bool line(struct state *state, char *text_line)
{
    char *rest = NULL;
    char *key = strtok_r(text_line, " ", &rest);
    if (key == NULL) {
        return false;
    }
    if (strcmp(key, "device") != 0) {
        return global_line(state, key, rest);
    }
    char *index = strtok_r(NULL, " ", &rest);
    char *name = strtok_r(NULL, " ", &rest);
    long long n[1];
    if (index == NULL || name == NULL || !numbers(index, n, 1) || n[0] < 0 || n[0] >= MAX_DEVICES) {
        return false;
    }
    return device_line(&state->device[n[0]], name, rest);
}

bool state_read(const char *path, struct state *state)
{
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        fprintf(stderr, "mock NVML: cannot read the state file %s: %s\n", path, strerror(errno));
        return false;
    }
    memset(state, 0, sizeof *state);
    state->count = -1;
    char buffer[PATH_MAX + 64];
    bool good = true;
    bool ended = false;
    int at = 0;
    while (good && !ended && fgets(buffer, sizeof buffer, file) != NULL) {
        at++;
        buffer[strcspn(buffer, "\n")] = '\0';
        ended = strcmp(buffer, "end") == 0;
        if (!ended && !line(state, buffer)) {
            fprintf(stderr, "mock NVML: line %d of %s is not understood; nothing of it is used\n", at, path);
            good = false;
        }
    }
    if (good && !ended) {
        fprintf(stderr, "mock NVML: %s has no end line; nothing of it is used\n", path);
    }
    fclose(file);
    return good && ended;
}
