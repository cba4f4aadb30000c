/*
 * What the mock NVML answers is written in one text file, the state file; this header is that file in memory.
 *
 * The file is made by fleetwell.lab.nvml_state (Python), which names every key and its unit. Reader and writer are
 * built from the same checkout, so an unknown key or a missing `end` line is a mistake and not a newer version: the
 * library then refuses to answer instead of answering from half a file.
 */
#ifndef FLEETWELL_NVML_STATE_H
#define FLEETWELL_NVML_STATE_H

#include <limits.h>
#include <stdbool.h>

enum { MAX_DEVICES = 16, MAX_LINKS = 18, MAX_PROCESSES = 16, LINK_ERRORS = 5, TEXT = 96 };

enum hang_where { HANG_NEVER, HANG_AT_INIT, HANG_ANYWHERE };

struct process {
    unsigned pid;
    unsigned long long memory_mib;
};

struct device {
    bool described; /* at least one line of the file names it */
    bool absent;    /* not enumerated: not in the count, has no index */
    bool lost;
    int error; /* nvmlReturn_t of every call on this device; 0: none */
    char uuid[TEXT], name[TEXT], serial[TEXT], vbios[TEXT];
    unsigned domain, bus, slot, pci_id, subsystem_id, minor, architecture, cc_major, cc_minor, numa_node;
    unsigned long long memory_total_mib, memory_used_mib;
    int temperature, memory_temperature, margin, slowdown_temperature, shutdown_temperature;
    unsigned power_mw, power_limit_mw, utilization, clock_mhz, clock_max_mhz;
    unsigned long long ecc_volatile[2], ecc_aggregate[2]; /* [0] corrected, [1] uncorrected */
    bool sram_threshold_exceeded;
    unsigned rows_corrected, rows_uncorrected, rows_pending, rows_failed;
    bool row_remap_supported;
    int recovery_action; /* -1: this driver does not know the field */
    unsigned links;
    bool link_active[MAX_LINKS];
    unsigned long long link_errors[MAX_LINKS][LINK_ERRORS]; /* replay, recovery, crc flit, crc data, ecc */
    unsigned fabric_state, fabric_health;
    int mig; /* -1: not supported, 0 off, 1 on */
    unsigned persistence;
    unsigned long long throttle;
    unsigned pcie_gen, pcie_gen_max, pcie_width, pcie_width_max, pcie_replays;
    unsigned processes;
    struct process process[MAX_PROCESSES];
};

struct state {
    char driver_version[TEXT], nvml_version[TEXT];
    int cuda_version;
    int init_error;
    int count; /* what nvmlDeviceGetCount says; -1: as many as are enumerated */
    unsigned latency_ms;
    enum hang_where hang;
    char hang_file[PATH_MAX]; /* empty: sleep for ever; else write there, which blocks while it is frozen */
    enum hang_where crash;
    struct device device[MAX_DEVICES];
};

/* Reads the whole file at `path`. False, with the reason on stderr, when it cannot be read or understood. */
bool state_read(const char *path, struct state *state);

#endif
