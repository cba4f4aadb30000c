/*
 * A driver can stop answering at any moment, not only when a process starts. So every call looks at the state file
 * (one stat; it is read again only when it was replaced), and only then does what the file says: wait, hang, die, fail.
 */
#include "entry.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

struct state current;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned initialized;
static struct stat last_seen;
static bool readable;

static bool unchanged(const struct stat *now)
{
    return readable && now->st_ino == last_seen.st_ino && now->st_dev == last_seen.st_dev
           && now->st_mtim.tv_sec == last_seen.st_mtim.tv_sec && now->st_mtim.tv_nsec == last_seen.st_mtim.tv_nsec
           && now->st_size == last_seen.st_size;
}

static nvmlReturn_t refresh(void)
{
    const char *path = getenv("FLEETWELL_NVML_STATE");
    struct stat now;
    if (path == NULL || stat(path, &now) != 0) {
        return NVML_ERROR_DRIVER_NOT_LOADED; /* no state file: this machine has no driver */
    }
    if (!unchanged(&now)) {
        readable = state_read(path, &current);
        last_seen = now;
    }
    return readable ? NVML_SUCCESS : NVML_ERROR_UNKNOWN;
}

/* Blocks in the kernel, beyond the reach of SIGKILL, for as long as the filesystem that holds `path` is frozen. */
static nvmlReturn_t write_where_it_blocks(const char *path)
{
    int file = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0) {
        return NVML_ERROR_OPERATING_SYSTEM;
    }
    bool written = write(file, "x", 1) == 1 && fsync(file) == 0;
    close(file);
    return written ? NVML_SUCCESS : NVML_ERROR_OPERATING_SYSTEM;
}

static nvmlReturn_t misbehave(bool at_init)
{
    enum hang_where here = at_init ? HANG_AT_INIT : HANG_ANYWHERE;
    pthread_mutex_lock(&lock);
    nvmlReturn_t result = refresh();
    enum hang_where hang = current.hang;
    enum hang_where crash = current.crash;
    unsigned latency = current.latency_ms;
    char file[PATH_MAX];
    memcpy(file, current.hang_file, sizeof file);
    pthread_mutex_unlock(&lock);
    if (result != NVML_SUCCESS) {
        return result;
    }
    if (crash == here || crash == HANG_ANYWHERE) {
        abort();
    }
    if (latency > 0) {
        struct timespec pause_for = {.tv_sec = latency / 1000, .tv_nsec = (long)(latency % 1000) * 1000000L};
        nanosleep(&pause_for, NULL);
    }
    if (hang != here && hang != HANG_ANYWHERE) {
        return NVML_SUCCESS;
    }
    if (file[0] != '\0') {
        return write_where_it_blocks(file);
    }
    for (;;) {
        pause();
    }
}

static nvmlReturn_t take_lock(void)
{
    pthread_mutex_lock(&lock);
    nvmlReturn_t result = refresh();
    if (result != NVML_SUCCESS) {
        pthread_mutex_unlock(&lock);
    }
    return result;
}

nvmlReturn_t enter_init(void)
{
    nvmlReturn_t result = misbehave(true);
    if (result == NVML_SUCCESS) {
        result = take_lock();
    }
    if (result != NVML_SUCCESS) {
        return result;
    }
    if (current.init_error != 0) {
        return leave(current.init_error);
    }
    initialized++;
    return NVML_SUCCESS;
}

nvmlReturn_t enter(void)
{
    nvmlReturn_t result = misbehave(false);
    if (result == NVML_SUCCESS) {
        result = take_lock();
    }
    if (result == NVML_SUCCESS && initialized == 0) {
        return leave(NVML_ERROR_UNINITIALIZED);
    }
    return result;
}

nvmlReturn_t enter_device(nvmlDevice_t handle, struct device **device)
{
    nvmlReturn_t result = enter();
    if (result != NVML_SUCCESS) {
        return result;
    }
    if (handle < current.device || handle >= current.device + MAX_DEVICES || !handle->described) {
        return leave(NVML_ERROR_INVALID_ARGUMENT);
    }
    if (handle->lost || handle->absent) {
        return leave(NVML_ERROR_GPU_IS_LOST);
    }
    if (handle->error != 0) {
        return leave(handle->error);
    }
    *device = handle;
    return NVML_SUCCESS;
}

nvmlReturn_t leave(nvmlReturn_t result)
{
    pthread_mutex_unlock(&lock);
    return result;
}

void count_shutdown(void)
{
    initialized--;
}
