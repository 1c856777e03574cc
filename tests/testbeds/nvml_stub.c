/* A libnvidia-ml.so.1 without a GPU: NVML's own symbols, answered from the file that NVML_STUB_FILE names.
 *
 * The file is read at every call, so a test changes the GPUs under a running program. A line a GPU, in the order of their indices:
 *     gpu used=0 util=0 ... name=NVIDIA A100-SXM4-80GB
 * with memory in MiB, `processes=PID:MIB,PID:MIB` and the name last; of the other keys one that is absent is 0. A GPU with `mig=1` has instances,
 * counted from 0, with their numbers at the driver:
 *     instance GPU.COUNT gi=7 memory=9728 used=0 ... name=NVIDIA A100-SXM4-80GB MIG 1g.10gb
 * and its error events are of the instance `xid_gi=`, if that is there. Other lines:
 *     driver 550.54.15      its version
 *     init 9                what nvmlInitWithFlags returns
 *     hang                  every call waits until this line is gone
 * Without the variable or the file the driver is not loaded. Nothing here is thread-safe but what runs in one thread at a time.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { OK, UNINITIALIZED, INVALID_ARGUMENT, NOT_SUPPORTED, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, NOT_LOADED = 9, TIMEOUT = 10, LOST = 15 };
enum { MAX_GPUS = 64, MAX_INSTANCES = 7, MAX_LINE = 1024 };
#define XID_CRITICAL 8ULL

struct gpu { int index, instance; }; /* instance: from 1 on; 0: the whole of it */
struct event { struct gpu *device; unsigned long long type, data; unsigned instance, compute; };
struct process { unsigned pid; unsigned long long bytes; unsigned instance, compute; };

static struct gpu gpus[MAX_GPUS];
static struct gpu instances[MAX_GPUS][MAX_INSTANCES];
static unsigned long long told_xid[MAX_GPUS];
static int initialised;

/* The number after ` key=` in a line; 0 without. */
static unsigned long long number(const char *line, const char *key) {
    char wanted[64];
    snprintf(wanted, sizeof wanted, " %s=", key);
    const char *found = strstr(line, wanted);
    return found ? strtoull(found + strlen(wanted), NULL, 10) : 0;
}

/* Reads the file: the line of one GPU into `line` (when not NULL), the number of GPUs, and what stands after `word`. */
static int look(int index, char *line, int *count, const char *word, char *rest) {
    const char *path = getenv("NVML_STUB_FILE");
    FILE *file = path ? fopen(path, "r") : NULL;
    if (!file) return NOT_LOADED;
    char each[MAX_LINE];
    int seen = 0, hangs = 0;
    while (fgets(each, sizeof each, file)) {
        each[strcspn(each, "\n")] = 0;
        if (!strncmp(each, "gpu ", 4)) {
            if (seen == index && line) strcpy(line, each + 3);
            seen++;
        } else if (!strcmp(each, "hang")) {
            hangs = 1;
        } else if (word && !strncmp(each, word, strlen(word))) {
            strcpy(rest, each + strlen(word) + (word[strlen(word) - 1] != ' '));
        }
    }
    fclose(file);
    if (hangs) {
        nanosleep(&(struct timespec){0, 20000000}, NULL);
        return look(index, line, count, word, rest);
    }
    if (count) *count = seen;
    return OK;
}

/* The line of a GPU that answers. */
static int gpu_line(struct gpu *gpu, char *line) {
    if (!initialised) return UNINITIALIZED;
    int count, failed = look(gpu->index, line, &count, NULL, NULL);
    if (failed) return failed;
    if (gpu->index >= count) return LOST;
    if (number(line, "lost")) return LOST;
    if (!gpu->instance) return OK;
    char word[64];
    snprintf(word, sizeof word, "instance %d.%d ", gpu->index, gpu->instance - 1);
    line[0] = line[1] = 0;
    failed = look(-1, NULL, NULL, word, line + 1);
    if (!line[1]) return failed ? failed : NOT_FOUND;
    line[0] = ' ';
    return failed;
}

static int value(struct gpu *gpu, const char *key, unsigned long long *answer) {
    char line[MAX_LINE] = "";
    int failed = gpu_line(gpu, line);
    if (!failed) *answer = number(line, key);
    return failed;
}

int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    char code[MAX_LINE] = "0";
    int failed = look(-1, NULL, NULL, "init", code);
    if (failed || atoi(code)) return failed ? failed : atoi(code);
    for (int index = 0; index < MAX_GPUS; index++) gpus[index].index = index;
    initialised = 1;
    return OK;
}

int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }

int nvmlShutdown(void) {
    initialised = 0;
    return OK;
}

int nvmlSystemGetDriverVersion(char *version, unsigned length) {
    char text[MAX_LINE] = "550.54.15";
    int failed = look(-1, NULL, NULL, "driver", text);
    snprintf(version, length, "%s", text);
    return failed;
}

int nvmlDeviceGetCount_v2(unsigned *answer) {
    int count, failed = initialised ? look(-1, NULL, &count, NULL, NULL) : UNINITIALIZED;
    if (!failed) *answer = count;
    return failed;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct gpu **device) {
    unsigned count;
    int failed = nvmlDeviceGetCount_v2(&count);
    if (failed || index >= count) return failed ? failed : INVALID_ARGUMENT;
    *device = &gpus[index];
    char line[MAX_LINE] = "";
    return gpu_line(*device, line);
}

int nvmlDeviceGetName(struct gpu *gpu, char *name, unsigned length) {
    char line[MAX_LINE] = "";
    int failed = gpu_line(gpu, line);
    char *found = failed ? NULL : strstr(line, " name=");
    snprintf(name, length, "%s", found ? found + 6 : "");
    return failed;
}

int nvmlDeviceGetUUID(struct gpu *gpu, char *uuid, unsigned length) {
    char line[MAX_LINE] = "";
    int failed = gpu_line(gpu, line);
    snprintf(uuid, length, "%s-%08d-0000-0000-0000-%012llu", gpu->instance ? "MIG" : "GPU", gpu->index, number(line, "gi"));
    return failed;
}

int nvmlDeviceGetMemoryInfo(struct gpu *gpu, unsigned long long memory[3]) {
    unsigned long long total, used;
    int failed = value(gpu, "memory", &total);
    if (failed || (failed = value(gpu, "used", &used))) return failed;
    memory[0] = total << 20, memory[1] = (total - used) << 20, memory[2] = used << 20;
    return OK;
}

int nvmlDeviceGetUtilizationRates(struct gpu *gpu, unsigned rates[2]) {
    unsigned long long percent, mig;
    int failed = value(gpu, "util", &percent);
    if (failed || (failed = value(gpu, "mig", &mig))) return failed;
    if (mig || gpu->instance) return NOT_SUPPORTED;
    rates[0] = percent, rates[1] = percent;
    return OK;
}

int nvmlDeviceGetTemperature(struct gpu *gpu, int sensor, unsigned *celsius) {
    unsigned long long answer;
    int failed = sensor ? INVALID_ARGUMENT : value(gpu, "temperature", &answer);
    if (!failed) *celsius = answer;
    return failed;
}

int nvmlDeviceGetPowerUsage(struct gpu *gpu, unsigned *milliwatts) {
    unsigned long long watts;
    int failed = value(gpu, "watts", &watts);
    if (!failed && !watts) return NOT_SUPPORTED;
    if (!failed) *milliwatts = watts * 1000;
    return failed;
}

int nvmlDeviceGetCurrentClocksThrottleReasons(struct gpu *gpu, unsigned long long *reasons) {
    return value(gpu, "clocks", reasons);
}

struct pci { char legacy[16]; unsigned domain, bus, device, pci, subsystem; char bus_id[32]; };

int nvmlDeviceGetPciInfo_v3(struct gpu *gpu, struct pci *pci) {
    char line[MAX_LINE] = "";
    int failed = gpu_line(gpu, line);
    memset(pci, 0, sizeof *pci);
    snprintf(pci->bus_id, sizeof pci->bus_id, "00000000:%02X:00.0", gpu->index + 1);
    return failed;
}

/* Link 0 leads to the switch `switch=`, link 1 to the GPU `peer=`, of which the first is 1. */
static int linked(struct gpu *gpu, unsigned link, unsigned long long *to) {
    *to = 0;
    return link > 1 ? INVALID_ARGUMENT : value(gpu, link ? "peer" : "switch", to);
}

int nvmlDeviceGetNvLinkState(struct gpu *gpu, unsigned link, unsigned *active) {
    unsigned long long to;
    int failed = linked(gpu, link, &to);
    *active = to != 0;
    return failed;
}

int nvmlDeviceGetNvLinkRemotePciInfo_v2(struct gpu *gpu, unsigned link, struct pci *pci) {
    unsigned long long to;
    int failed = linked(gpu, link, &to);
    memset(pci, 0, sizeof *pci);
    snprintf(pci->bus_id, sizeof pci->bus_id, "000000%s:%02llX:00.0", link ? "00" : "FF", to);
    return failed;
}

/* On one NUMA node where `numa=` is the same. */
int nvmlDeviceGetTopologyCommonAncestor(struct gpu *one, struct gpu *other, int *level) {
    unsigned long long first, second;
    int failed = value(one, "numa", &first);
    if (failed || (failed = value(other, "numa", &second))) return failed;
    *level = first == second ? 40 : 50;
    return first && second ? OK : NOT_SUPPORTED;
}

int nvmlDeviceGetMigMode(struct gpu *gpu, unsigned *current, unsigned *pending) {
    unsigned long long answer;
    int failed = value(gpu, "mig", &answer);
    if (!failed) *current = *pending = answer;
    return failed;
}

int nvmlDeviceGetMaxMigDeviceCount(struct gpu *gpu, unsigned *count) {
    unsigned long long mig;
    int failed = value(gpu, "mig", &mig);
    *count = mig ? MAX_INSTANCES : 0;
    return failed;
}

int nvmlDeviceGetMigDeviceHandleByIndex(struct gpu *gpu, unsigned index, struct gpu **instance) {
    if (index >= MAX_INSTANCES) return INVALID_ARGUMENT;
    *instance = &instances[gpu->index][index];
    **instance = (struct gpu){gpu->index, index + 1};
    char line[MAX_LINE] = "";
    return gpu_line(*instance, line);
}

int nvmlDeviceGetGpuInstanceId(struct gpu *instance, unsigned *id) {
    unsigned long long answer;
    int failed = value(instance, "gi", &answer);
    if (!failed) *id = answer;
    return failed;
}

int nvmlDeviceGetTotalEccErrors(struct gpu *gpu, int kind, int counter, unsigned long long *errors) {
    return value(gpu, kind != 1 ? "corrected" : counter == 0 ? "ecc" : "lifetime_ecc", errors);
}

int nvmlDeviceGetRemappedRows(struct gpu *gpu, unsigned *corrected, unsigned *uncorrected, unsigned *pending, unsigned *failure) {
    unsigned long long rows, waits, failed_ones;
    int failed = value(gpu, "remapped", &rows);
    if (failed || (failed = value(gpu, "remap_pending", &waits)) || (failed = value(gpu, "remap_failure", &failed_ones)))
        return failed;
    *corrected = 0, *uncorrected = rows, *pending = waits, *failure = failed_ones;
    return OK;
}

int nvmlDeviceGetRetiredPagesPendingStatus(struct gpu *gpu, int *pending) {
    unsigned long long answer;
    int failed = value(gpu, "retired_pending", &answer);
    if (!failed) *pending = answer;
    return failed;
}

int nvmlDeviceGetComputeRunningProcesses_v3(struct gpu *gpu, unsigned *count, struct process *processes) {
    char line[MAX_LINE] = "";
    int failed = gpu_line(gpu, line);
    if (failed) return failed;
    char *at = strstr(line, " processes=");
    unsigned found = 0;
    for (at = at ? at + 11 : NULL; at && *at && *at != ' ';) {
        struct process each = {strtoul(at, &at, 10), 0, ~0u, ~0u};
        if (*at == ':') each.bytes = strtoull(at + 1, &at, 10) << 20;
        if (*at == ',') at++;
        if (processes && found < *count) processes[found] = each;
        found++;
    }
    unsigned room = *count;
    *count = found;
    return found > room ? INSUFFICIENT_SIZE : OK;
}

int nvmlEventSetCreate(void **set) {
    *set = told_xid;
    memset(told_xid, 0, sizeof told_xid);
    return initialised ? OK : UNINITIALIZED;
}

int nvmlDeviceRegisterEvents(struct gpu *gpu, unsigned long long types, void *set) {
    (void)set;
    char line[MAX_LINE] = "";
    return types == XID_CRITICAL ? gpu_line(gpu, line) : NOT_SUPPORTED;
}

/* Each new value of `xid=` is an event once. */
int nvmlEventSetWait_v2(void *set, struct event *data, unsigned timeout_ms) {
    (void)set, (void)timeout_ms;
    int count, failed = look(-1, NULL, &count, NULL, NULL);
    for (int index = 0; !failed && index < count && index < MAX_GPUS; index++) {
        char line[MAX_LINE] = "";
        failed = look(index, line, NULL, NULL, NULL);
        unsigned long long xid = number(line, "xid");
        if (xid == told_xid[index]) continue;
        told_xid[index] = xid;
        if (!xid) continue;
        unsigned of = strstr(line, " xid_gi=") ? number(line, "xid_gi") : ~0u;
        *data = (struct event){&gpus[index], XID_CRITICAL, xid, of, of};
        return OK;
    }
    return failed ? failed : TIMEOUT;
}

int nvmlEventSetFree(void *set) {
    (void)set;
    return OK;
}
