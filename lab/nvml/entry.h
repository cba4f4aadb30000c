/* How each NVML call begins and ends: the state is read anew when it changed, then hangs, crashes and errors apply. */
#ifndef FLEETWELL_NVML_ENTRY_H
#define FLEETWELL_NVML_ENTRY_H

#include "nvml.h"
#include "state.h"

#define EXPORT __attribute__((visibility("default")))

/* The last good reading of the state file. Touch it only between an enter that returned NVML_SUCCESS and leave. */
extern struct state current;

nvmlReturn_t enter_init(void);
nvmlReturn_t enter(void);
/* Enters and checks the device: lost, in error, or not a handle of ours. `*device` is set on NVML_SUCCESS only. */
nvmlReturn_t enter_device(nvmlDevice_t handle, struct device **device);
/* Ends a call that was entered; returns its argument. */
nvmlReturn_t leave(nvmlReturn_t result);
void count_shutdown(void);

#endif
