/*
 * Copyright: gpufleet contributors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 *
 * numaspread: give a command a NUMA memory policy, then become it.
 *
 * One system call sets the policy and execve(2) keeps it, so nothing of this program is left when the command runs.
 * Before that call, sysfs tells which nodes have memory and CPUs, and the kernel which of them this process may use:
 * the kernel drops unusable nodes from a mask without a word, this program doesn't. It allocates nothing, and it
 * leaves signals, environment and file descriptors as they were.
 */
#define _GNU_SOURCE
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <linux/mempolicy.h>
#include <sched.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#define PROGRAM_VERSION "1.0.0"

/* Modes that older headers lack. They are enumerators there, so #ifdef can't tell; the kernel's values never change. */
enum { PREFERRED_MANY = 5 /* Linux 5.15 */, WEIGHTED_INTERLEAVE = 6 /* Linux 6.9 */ };

enum { LAUNCHER_FAILED = 125, CANNOT_EXECUTE = 126, NOT_FOUND = 127 }; /* as in env(1) and timeout(1) */
enum {
    MAX_CPUS = 8192,  /* the largest CONFIG_NR_CPUS there is */
    MAX_NODES = 1024, /* 1 << the largest CONFIG_NODES_SHIFT there is */
    MAX_GPUS = 128,
    MAX_TEXT = 49152, /* holds the list of any set, and any file read here */
    MAX_PATH = 4096,
    WORD_BITS = 8 * sizeof(unsigned long),
    WORDS = MAX_CPUS / WORD_BITS,
};

enum { /* an option is known by its letter */
    MODE = 'm', NODES = 'n', CPUS = 'c', GPU = 'g', ROOT = 'r', BEST_EFFORT = 'b', CPULESS = 'l',
    DRY_RUN = 'd', VERIFY = 'y', VERBOSE = 'v', HELP = 'h', VERSION = 'V',
};
static const char *opt[128]; /* the value given, "1" for one that takes none, NULL when not given */

/* ---- messages --------------------------------------------------------------------------------------------- */

__attribute__((format(printf, 2, 3))) static void message(const char *end, const char *format, ...)
{
    static char text[3 * MAX_TEXT];
    va_list args;
    va_start(args, format);
    int n = snprintf(text, sizeof text, "numaspread: ");
    n += vsnprintf(text + n, sizeof text - (size_t)n, format, args);
    va_end(args);
    if ((size_t)n + strlen(end) + 1 > sizeof text)
        n = (int)(sizeof text - strlen(end) - 1);
    strcpy(text + n, end);
    (void)!write(STDERR_FILENO, text, (size_t)n + strlen(end)); /* one write, so the lines of many ranks don't mix */
}
#define say(...) message("\n", __VA_ARGS__)
#define fail(...) (say(__VA_ARGS__), exit(LAUNCHER_FAILED))
/* Stops the launcher, unless best effort is asked for: then this is said, and the caller goes on without. */
#define refuse(...) (opt[BEST_EFFORT] ? message(" (--best-effort: going on without)\n", __VA_ARGS__) : fail(__VA_ARGS__))

/* ---- sets of ids, nodes or CPUs, laid out as the kernel reads them ------------------------------------------ */

struct set {
    unsigned long word[WORDS];
};
static const struct set empty;

static void add(struct set *s, unsigned id)
{
    s->word[id / WORD_BITS] |= 1UL << id % WORD_BITS;
}

static bool is_equal(const struct set *a, const struct set *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

static bool is_empty(const struct set *s)
{
    return is_equal(s, &empty);
}

static struct set both(const struct set *a, const struct set *b)
{
    struct set s;
    for (unsigned i = 0; i < WORDS; i++)
        s.word[i] = a->word[i] & b->word[i];
    return s;
}

static struct set without(const struct set *a, const struct set *b)
{
    struct set s;
    for (unsigned i = 0; i < WORDS; i++)
        s.word[i] = a->word[i] & ~b->word[i];
    return s;
}

/* The first id from `id` on that is in the set, or that isn't; MAX_CPUS if there is none. */
static unsigned next(const struct set *s, unsigned id, bool in)
{
    while (id < MAX_CPUS && (s->word[id / WORD_BITS] >> id % WORD_BITS & 1) != in)
        id++;
    return id;
}

/* "0-3,8", or "none"; valid until the fifth call after this one. */
static const char *list_text(const struct set *s)
{
    static char texts[5][MAX_TEXT];
    static unsigned calls;
    char *text = texts[calls++ % 5];
    int n = 0;
    for (unsigned id = next(s, 0, true), end; id < MAX_CPUS; id = next(s, end, true)) {
        end = next(s, id, false);
        n += sprintf(text + n, end - id == 1 ? "%s%u" : "%s%u-%u", n ? "," : "", id, end - 1);
    }
    return n ? text : "none";
}

static const char *mask_text(const struct set *s)
{
    static char text[MAX_TEXT];
    int i = WORDS - 1, n;
    while (i > 0 && s->word[i] == 0)
        i--;
    for (n = sprintf(text, "0x%lx", s->word[i]); i-- > 0;)
        n += sprintf(text + n, "%0*lx", WORD_BITS / 4, s->word[i]);
    return text;
}

/* Reads an id below `limit` and moves *p behind it. False, and *p stays, when there is none. */
static bool parse_id(const char **p, unsigned limit, unsigned *id)
{
    const char *s = *p;
    for (*id = 0; isdigit((unsigned char)*s) && *id < limit; s++)
        *id = 10 * *id + (unsigned)(*s - '0');
    if (s == *p || *id >= limit)
        return false;
    *p = s;
    return true;
}

/* Reads a list of ids and ranges below `limit`. NULL, or what is wrong at s[*at]. */
static const char *parse_list(const char *s, unsigned limit, struct set *set, size_t *at)
{
    const char *p = s;
    unsigned first, last;
    for (*set = empty;; p++) {
        *at = (size_t)(p - s);
        if (!parse_id(&p, limit, &first))
            return isdigit((unsigned char)*p) ? "the id is too large" : "an id is missing";
        last = first;
        if (*p == '-') {
            *at = (size_t)(++p - s);
            if (!parse_id(&p, limit, &last))
                return isdigit((unsigned char)*p) ? "the id is too large" : "the end of the range is missing";
            if (last < first)
                return "the range runs backwards";
        }
        for (; first <= last; first++)
            add(set, first);
        *at = (size_t)(p - s);
        if (*p != ',')
            return *p ? "this is neither a comma nor a range" : NULL;
    }
}

static struct set parse_list_option(const char *name, const char *list, unsigned limit)
{
    struct set set;
    size_t at;
    const char *wrong = parse_list(list, limit, &set, &at);
    if (wrong)
        fail("--%s \"%s\", position %zu: %s; give ids below %u and ranges of them, as in 0-3,8", name, list, at + 1, wrong, limit);
    return set;
}

/* ---- files under the root ----------------------------------------------------------------------------------- */

#define NODE_DIR "/sys/devices/system/node"
#define PCI_DIR "/sys/bus/pci/devices"
#define NVIDIA_DIR "/proc/driver/nvidia/gpus"
#define WEIGHT_DIR "/sys/kernel/mm/mempolicy/weighted_interleave"

/* A path under the root, valid until the next call. */
__attribute__((format(printf, 1, 2))) static const char *rooted(const char *format, ...)
{
    static char path[MAX_PATH];
    int n = snprintf(path, MAX_PATH, "%s", opt[ROOT] ? opt[ROOT] : "");
    va_list args;
    va_start(args, format);
    if (n >= MAX_PATH || n + vsnprintf(path + n, MAX_PATH - (size_t)n, format, args) >= MAX_PATH)
        fail("--root is too long; give one of fewer than %d bytes", MAX_PATH / 2);
    va_end(args);
    return path;
}

static bool exists(const char *path)
{
    return access(path, F_OK) == 0;
}

/* The text of a file without its last newline, valid until the next call. NULL when it can't be read. */
static char *read_text(const char *path)
{
    static char text[MAX_TEXT];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return NULL;
    ssize_t size = read(fd, text, sizeof text - 1); /* files of sysfs and procfs come whole */
    close(fd);
    text[size > 0 ? size - (text[size - 1] == '\n') : 0] = '\0';
    return size < 0 ? NULL : text;
}

/* What a line of the text has behind `label` and blanks. NULL without such a line. */
static const char *field(char *text, const char *label)
{
    char *value = text ? strstr(text, label) : NULL;
    if (!value)
        return NULL;
    value += strlen(label);
    value += strspn(value, " \t");
    value[strcspn(value, "\n")] = '\0';
    return value;
}

static bool read_list(struct set *set, unsigned limit, const char *text)
{
    size_t at;
    *set = empty;
    return text && (*text == '\0' || !parse_list(text, limit, set, &at));
}

/* ---- the machine: its nodes, what they have, and which of them are ours --------------------------------------- */

struct machine {
    bool numa;                             /* false: a kernel without NUMA */
    struct set online, memory, cpus, ours; /* nodes: there, with memory, with CPUs, allowed to this process */
};

/*
 * Nodes as sysfs lists them. A kernel or a capture that lacks the list has a file in each node that isn't empty or zero.
 * False without a folder of nodes.
 */
static bool read_nodes(struct set *nodes, const char *list, const char *file)
{
    if (read_list(nodes, MAX_NODES, read_text(rooted(NODE_DIR "/%s", list))))
        return true;
    *nodes = empty;
    bool folder = exists(rooted(NODE_DIR));
    for (unsigned node = 0; folder && node < MAX_NODES; node++) {
        char *text = read_text(rooted(NODE_DIR "/node%u/%s", node, file));
        bool filled = text && *text;
        const char *total = field(text, "MemTotal:");
        if (filled && (!total || strtoull(total, NULL, 10) > 0))
            add(nodes, node);
    }
    return folder;
}

static void read_machine(struct machine *m)
{
    bool sysfs = read_nodes(&m->memory, "has_memory", "meminfo");
    bool told = !opt[ROOT] && syscall(SYS_get_mempolicy, NULL, &m->ours, MAX_NODES + 1UL, NULL, MPOL_F_MEMS_ALLOWED) == 0;
    m->numa = sysfs || told;
    if (sysfs) {
        read_nodes(&m->cpus, "has_cpu", "cpulist");
        if (opt[NODES] || opt[GPU] || opt[DRY_RUN] || opt[VERBOSE])
            read_nodes(&m->online, "online", "cpumap");
        else /* the others only matter to those who ask */
            m->online = m->memory;
        if (!told && !read_list(&m->ours, MAX_NODES, field(read_text(rooted("/proc/self/status")), "Mems_allowed_list:")))
            m->ours = m->online; /* not told by a seccomp profile, an emulator, another root */
    } else if (m->numa) { /* sysfs is hidden: allowed nodes have memory, which ones have CPUs isn't known */
        m->online = m->memory = m->ours;
    } else {
        m->ours = empty;
        add(&m->ours, 0);
        m->online = m->memory = m->cpus = m->ours;
    }
}

/* ---- the decision --------------------------------------------------------------------------------------------- */

static const struct mode {
    const char *name;
    int policy;
    bool takes_nodes;
    unsigned major, minor; /* the kernel that brought it */
} modes[] = {
    { "interleave", MPOL_INTERLEAVE, true, 2, 6 },
    { "weighted", WEIGHTED_INTERLEAVE, true, 6, 9 },
    { "preferred-many", PREFERRED_MANY, true, 5, 15 },
    { "bind", MPOL_BIND, true, 2, 6 },
    { "local", MPOL_LOCAL, false, 3, 8 },
}, *const interleave = &modes[0], *const weighted = &modes[1], *const bind = &modes[3], *const local = &modes[4];

enum { ABSENT, NO_MEMORY, FORBIDDEN, NO_CPUS, REASONS };
static const char *const reasons[REASONS] = {
    [ABSENT] = "not on this machine",
    [NO_MEMORY] = "no memory",
    [FORBIDDEN] = "outside the cpuset of this process",
    [NO_CPUS] = "no CPUs: GPU, CXL or other memory, taken by --nodes or --cpuless",
};

struct decision {
    const struct mode *mode;      /* NULL: leave the memory policy as it is */
    struct set nodes;             /* where memory goes */
    struct set left_out[REASONS]; /* and where it doesn't */
    struct set cpus;              /* empty: leave the affinity as it is */
    char gpu[24];                 /* PCI address, or "" */
};

static void choose_mode(struct decision *d)
{
    const char *name = opt[MODE] ? opt[MODE] : opt[GPU] ? bind->name : interleave->name;
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
        if (strcmp(name, modes[i].name) == 0)
            d->mode = &modes[i];
    if (!d->mode)
        fail("--mode \"%s\" is unknown; give interleave, weighted, preferred-many, bind or local", name);
}

/* Keeps the usable ones of these nodes, and of each of the others the first reason against it. */
static void keep_usable(struct decision *d, const struct machine *m, const struct set *nodes)
{
    for (unsigned i = 0; i < WORDS; i++) {
        unsigned long left = nodes->word[i];
        d->left_out[ABSENT].word[i] = left & ~m->online.word[i];
        left &= m->online.word[i];
        d->left_out[NO_MEMORY].word[i] = left & ~m->memory.word[i];
        left &= m->memory.word[i];
        d->left_out[FORBIDDEN].word[i] = left & ~m->ours.word[i];
        d->nodes.word[i] = left & m->ours.word[i];
    }
}

/* "2-8 (no memory), 9 (not on this machine)" */
static const char *left_out_text(const struct decision *d)
{
    static char text[REASONS * MAX_TEXT];
    *text = '\0';
    for (int i = 0, n = 0; i < REASONS; i++)
        if (!is_empty(&d->left_out[i]))
            n += sprintf(text + n, "%s%s (%s)", n ? ", " : "", list_text(&d->left_out[i]), reasons[i]);
    return text;
}

static void choose_nodes(struct decision *d, const struct machine *m)
{
    struct set usable = both(&m->memory, &m->ours);
    if (opt[NODES] && strcmp(opt[NODES], "auto") != 0) {
        struct set wanted = parse_list_option("nodes", opt[NODES], MAX_NODES);
        if (!d->mode->takes_nodes)
            fail("--mode %s takes no nodes; leave --nodes out, or give --mode bind", d->mode->name);
        keep_usable(d, m, &wanted);
        if (!is_equal(&d->nodes, &wanted))
            refuse("--nodes %s asks for %s; name nodes among %s, or give auto", opt[NODES], left_out_text(d), list_text(&usable));
    } else {
        keep_usable(d, m, &m->online);
        struct set with_cpus = both(&d->nodes, &m->cpus);
        if (!opt[CPULESS] && !is_empty(&with_cpus)) {
            d->left_out[NO_CPUS] = without(&d->nodes, &with_cpus);
            d->nodes = with_cpus;
        } else if (!opt[CPULESS] && d->mode->takes_nodes && next(&d->nodes, next(&d->nodes, 0, true) + 1, true) < MAX_CPUS)
            say("no usable node is known to have CPUs, so %s are taken; name nodes with --nodes if one is GPU memory",
                list_text(&d->nodes));
    }
    if (d->mode->takes_nodes && is_empty(&d->nodes)) {
        refuse("no usable NUMA node is left; widen cpuset.mems (AllowedMemoryNodes=) of this process, or name nodes among %s",
               list_text(&usable));
        d->mode = NULL;
    }
    if (!m->numa)
        d->mode = NULL;
}

/* ---- a GPU, and its node ---------------------------------------------------------------------------------------- */

struct gpu {
    unsigned long address; /* domain, bus, device and function: orders as PCI does */
    char uuid[64];
};

static bool parse_address(const char *s, unsigned long *address)
{
    unsigned domain, bus, device, function;
    char rest;
    if (sscanf(s, "%8x:%2x:%2x.%1x%c", &domain, &bus, &device, &function, &rest) != 4) {
        domain = 0;
        if (sscanf(s, "%2x:%2x.%1x%c", &bus, &device, &function, &rest) != 3)
            return false;
    }
    *address = (unsigned long)domain << 16 | bus << 8 | (device & 31) << 3 | (function & 7);
    return true;
}

/* Reads what a driver tells of a GPU. False for a device that is no GPU, or not one for this process. */
static bool read_gpu(struct gpu *gpu, const char *name, bool nvidia)
{
    if (!nvidia) { /* without NVIDIA's list: display controllers and accelerators of NVIDIA and AMD */
        char *text = read_text(rooted(PCI_DIR "/%s/class", name));
        if (!text || (strncmp(text, "0x03", 4) != 0 && strncmp(text, "0x12", 4) != 0))
            return false;
        text = read_text(rooted(PCI_DIR "/%s/vendor", name));
        return text && (strcmp(text, "0x10de") == 0 || strcmp(text, "0x1002") == 0);
    }
    const char *uuid = field(read_text(rooted(NVIDIA_DIR "/%s/information", name)), "GPU UUID:");
    snprintf(gpu->uuid, sizeof gpu->uuid, "%s", uuid ? uuid : "");
    const char *minor = field(read_text(rooted(NVIDIA_DIR "/%s/information", name)), "Device Minor:");
    return !minor || access(rooted("/dev/nvidia%s", minor), R_OK | W_OK) == 0 || errno == ENOENT; /* a device cgroup says EPERM */
}

/* The GPUs this process may use, in PCI order. */
static size_t list_gpus(struct gpu gpus[MAX_GPUS])
{
    _Alignas(struct dirent64) static char entries[MAX_TEXT];
    bool nvidia = exists(rooted(NVIDIA_DIR)); /* in a container it holds only the container's GPUs, sysfs holds all */
    int fd = open(rooted("%s", nvidia ? NVIDIA_DIR : PCI_DIR), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    size_t n = 0, i;
    for (ssize_t size; fd >= 0 && (size = syscall(SYS_getdents64, fd, entries, sizeof entries)) > 0;)
        for (struct dirent64 *entry = (void *)entries; (char *)entry < entries + size; entry = (void *)((char *)entry + entry->d_reclen)) {
            struct gpu gpu = { 0 };
            if (n == MAX_GPUS || !parse_address(entry->d_name, &gpu.address) || !read_gpu(&gpu, entry->d_name, nvidia))
                continue;
            for (i = n++; i > 0 && gpus[i - 1].address > gpu.address; i--)
                gpus[i] = gpus[i - 1];
            gpus[i] = gpu;
        }
    if (fd >= 0)
        close(fd);
    return n;
}

/* The GPU whose UUID begins so; like CUDA, NULL unless it is the only one. */
static const struct gpu *find_uuid(const struct gpu *gpus, size_t n, const char *uuid, size_t length)
{
    const struct gpu *found = NULL;
    for (size_t i = 0, matches = 0; i < n; i++)
        if (strncasecmp(gpus[i].uuid, uuid, length) == 0)
            found = ++matches == 1 ? &gpus[i] : NULL;
    return found;
}

/*
 * Device number `index` as CUDA counts: all GPUs, or CUDA_VISIBLE_DEVICES in its order up to the first entry that names
 * none. *visible is their number. NULL for a number too high, and for a MIG device, which doesn't tell its GPU.
 */
static const struct gpu *find_index(const struct gpu *gpus, size_t n, size_t index, size_t *visible)
{
    const char *entry = getenv("CUDA_VISIBLE_DEVICES");
    const struct gpu *gpu, *found = NULL;
    size_t length;
    *visible = entry ? 0 : n;
    if (!entry)
        return index < n ? &gpus[index] : NULL;
    for (; *entry; entry += length + (entry[length] == ',')) {
        const char *end = entry;
        unsigned id;
        length = strcspn(entry, ",");
        if (strncmp(entry, "MIG-GPU-", 8) == 0)
            gpu = find_uuid(gpus, n, entry + 4, strcspn(entry + 4, "/,"));
        else if (parse_id(&end, (unsigned)n, &id))
            gpu = end == entry + length ? &gpus[id] : NULL;
        else
            gpu = strncmp(entry, "GPU-", 4) == 0 ? find_uuid(gpus, n, entry, length) : NULL;
        if (!gpu && strncmp(entry, "MIG-", 4) != 0)
            break;
        if ((*visible)++ == index)
            found = gpu;
    }
    return found;
}

/* What --gpu says by number. NULL when it names no GPU, and this has been said. */
static const struct gpu *find_number(const struct gpu *gpus, size_t n, const char *which)
{
    static const char *const ranks[] = { "LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", NULL };
    const char *number = which, *order = getenv("CUDA_DEVICE_ORDER");
    bool by_rank = strcmp(which, "rank") == 0;
    const struct gpu *gpu;
    size_t visible;
    unsigned index;
    for (size_t i = 0; by_rank && number == which && ranks[i]; i++)
        number = getenv(ranks[i]) ? getenv(ranks[i]) : which;
    if (!parse_id(&number, MAX_CPUS, &index) || *number) {
        refuse("--gpu %s: \"%s\" is no PCI address, GPU- UUID or number; rank needs LOCAL_RANK, SLURM_LOCALID or "
               "OMPI_COMM_WORLD_LOCAL_RANK to hold a number", which, number);
        return NULL;
    }
    if (order ? strcmp(order, "PCI_BUS_ID") != 0 : opt[VERBOSE] != NULL)
        say("CUDA_DEVICE_ORDER is %s, so CUDA may count otherwise than by PCI address, as is done here; set it to PCI_BUS_ID",
            order ? order : "not set");
    gpu = find_index(gpus, n, index, &visible);
    if (by_rank && visible == 1) /* each rank was given a GPU of its own */
        gpu = find_index(gpus, n, index = 0, &visible);
    if (index >= visible)
        refuse("--gpu %s: there is no number %u among the %zu GPUs of this process; look at CUDA_VISIBLE_DEVICES", which, index, visible);
    else if (!gpu)
        say("--gpu %s: a MIG device doesn't tell its GPU, so nothing is bound; give the PCI address of the GPU", which);
    return gpu;
}

/* What --gpu says. NULL when it names no GPU, and this has been said. */
static const struct gpu *find_gpu(const char *which)
{
    static struct gpu gpus[MAX_GPUS];
    if (parse_address(which, &gpus[0].address))
        return &gpus[0];
    size_t n = list_gpus(gpus);
    if (strncmp(which, "GPU-", 4) != 0)
        return find_number(gpus, n, which);
    const struct gpu *gpu = find_uuid(gpus, n, which, strlen(which));
    if (!gpu)
        refuse("--gpu %s: not exactly one of the %zu GPUs here has a UUID that begins so; nvidia-smi -L lists them", which, n);
    return gpu;
}

/* Memory to the GPU's node, CPUs to those of the node that are allowed: both or nothing. */
static void choose_gpu_node(struct decision *d, const struct machine *m)
{
    const struct mode *mode = d->mode;
    struct set node_set = empty, cpus, allowed = empty;
    if (mode == interleave || mode == weighted)
        fail("--gpu means one node and --mode %s several; give --mode bind, preferred-many or local", mode->name);
    if ((opt[NODES] && strcmp(opt[NODES], "auto") != 0) || opt[CPUS] || opt[CPULESS])
        fail("--gpu chooses nodes and CPUs itself; leave --nodes, --cpus and --cpuless out");
    d->mode = NULL;
    const struct gpu *gpu = find_gpu(opt[GPU]);
    if (!gpu)
        return;
    unsigned long a = gpu->address;
    sprintf(d->gpu, "%04lx:%02lx:%02lx.%lx", a >> 16, a >> 8 & 255, a >> 3 & 31, a & 7);
    if (exists(rooted(PCI_DIR)) && !exists(rooted(PCI_DIR "/%s", d->gpu))) {
        refuse("--gpu %s: there is no PCI device %s; lspci -D lists the addresses", opt[GPU], d->gpu);
        return;
    }
    const char *text = read_text(rooted(PCI_DIR "/%s/numa_node", d->gpu));
    long node = text ? strtol(text, NULL, 10) : -1;
    unsigned only = next(&m->online, 0, true);
    if (node < 0 && next(&m->online, only + 1, true) == MAX_CPUS)
        node = only;
    if (node < 0 || node >= MAX_NODES) {
        say("the NUMA node of GPU %s isn't known here, so nothing is bound; look at %s/%s/numa_node", d->gpu, PCI_DIR, d->gpu);
        return;
    }
    add(&node_set, (unsigned)node);
    keep_usable(d, m, &node_set);
    if (opt[ROOT] ? !read_list(&allowed, MAX_CPUS, field(read_text(rooted("/proc/self/status")), "Cpus_allowed_list:"))
                  : sched_getaffinity(0, sizeof allowed, (void *)&allowed) != 0)
        memset(&allowed, 0xff, sizeof allowed);
    read_list(&cpus, MAX_CPUS, read_text(rooted(NODE_DIR "/node%ld/cpulist", node)));
    d->cpus = both(&cpus, &allowed);
    if (!is_empty(&d->cpus) && !is_empty(&d->nodes))
        d->mode = mode;
    else if (m->numa)
        say("this process may use no %s of node %ld, where GPU %s is, so nothing is bound; widen its cpuset",
            is_empty(&d->cpus) ? "CPU" : "memory", node, d->gpu);
    if (!d->mode)
        d->cpus = empty;
}

static void print_decision(FILE *to, const struct decision *d, const struct machine *m)
{
    static char buffer[BUFSIZ];
    setvbuf(to, buffer, _IOFBF, sizeof buffer);
    if (!m->numa)
        fprintf(to, "kernel: without NUMA: one node, nothing to place\n");
    fprintf(to, "mode: %s\n", d->mode ? d->mode->name : "none, the policy stays as it is");
    if (d->mode && d->mode->takes_nodes)
        fprintf(to, "policy: %d\nnodes: %s\nmask: %s\n", d->mode->policy, list_text(&d->nodes), mask_text(&d->nodes));
    if (*left_out_text(d))
        fprintf(to, "left out: %s\n", left_out_text(d));
    for (unsigned node = 0; d->mode == weighted && (node = next(&d->nodes, node, true)) < MAX_NODES; node++) {
        const char *weight = read_text(rooted(WEIGHT_DIR "/node%u", node));
        fprintf(to, "weight of node %u: %s\n", node, weight ? weight : "not listed by this kernel");
    }
    if (*d->gpu)
        fprintf(to, "gpu: %s\n", d->gpu);
    fprintf(to, "cpus: %s\n", is_empty(&d->cpus) ? "unchanged" : list_text(&d->cpus));
    if (fflush(to) != 0 && to == stdout)
        fail("standard output can't be written (%s); free its device", strerror(errno));
}

/* ---- doing it ------------------------------------------------------------------------------------------------- */

static void set_affinity(const struct decision *d)
{
    struct set got = empty;
    if (is_empty(&d->cpus))
        return;
    if (sched_setaffinity(0, sizeof d->cpus, (const void *)&d->cpus) != 0)
        refuse("CPUs %s can't be set: %s; name CPUs that are online and in the cpuset of this process", list_text(&d->cpus),
               strerror(errno));
    else if (sched_getaffinity(0, sizeof got, (void *)&got) == 0 && !is_equal(&got, &d->cpus)) {
        struct set dropped = without(&d->cpus, &got);
        refuse("CPUs %s: the kernel drops %s, offline or outside the cpuset of this process; name CPUs among %s", list_text(&d->cpus),
               list_text(&dropped), list_text(&got));
    }
}

static bool try_policy(const struct decision *d)
{
    if (!d->mode->takes_nodes)
        return syscall(SYS_set_mempolicy, d->mode->policy, NULL, 0UL) == 0;
    return syscall(SYS_set_mempolicy, d->mode->policy, &d->nodes, MAX_NODES + 1UL) == 0; /* the kernel reads maxnode - 1 bits */
}

static void explain_refusal(int error, const struct decision *d)
{
    struct utsname kernel;
    unsigned major, minor;
    bool older = uname(&kernel) == 0 && sscanf(kernel.release, "%u.%u", &major, &minor) == 2
        && (major < d->mode->major || (major == d->mode->major && minor < d->mode->minor));
    if (error == EPERM)
        refuse("set_mempolicy is not permitted, as under a container's seccomp profile; give the container CAP_SYS_NICE, or a profile "
               "whose allow-list has set_mempolicy and get_mempolicy");
    else if (error == ENOSYS)
        refuse("set_mempolicy is not implemented: a kernel without NUMA, or an emulator; run on a kernel with NUMA, or with --best-effort");
    else if (error == EINVAL && older)
        refuse("kernel %s has no mode %s, which came with Linux %u.%u; give --mode interleave", kernel.release, d->mode->name,
               d->mode->major, d->mode->minor);
    else if (error == EINVAL)
        refuse("the kernel can use none of nodes %s for mode %s; compare them with Mems_allowed_list in /proc/self/status",
               list_text(&d->nodes), d->mode->name);
    else
        refuse("set_mempolicy failed: %s; give --best-effort to run the command all the same", strerror(error));
}

static void set_policy(struct decision *d)
{
    if (!d->mode || try_policy(d))
        return;
    if (errno == EINVAL && d->mode == weighted && opt[BEST_EFFORT]) {
        say("the kernel refuses weighted, which came with Linux 6.9 (--best-effort: falling back to interleave)");
        d->mode = interleave;
        if (try_policy(d))
            return;
    }
    explain_refusal(errno, d);
    d->mode = NULL;
}

static void verify_policy(const struct decision *d)
{
    int policy;
    struct set got = empty;
    if (!d->mode)
        return;
    if (syscall(SYS_get_mempolicy, &policy, &got, MAX_NODES + 1UL, NULL, 0UL) != 0)
        refuse("--verify: get_mempolicy failed: %s; allow it in the seccomp profile, or leave --verify out", strerror(errno));
    else if ((policy != d->mode->policy && !(d->mode == local && policy == MPOL_PREFERRED)) /* so do kernels before 5.14 say local */
             || !is_equal(&got, d->mode->takes_nodes ? &d->nodes : &empty))
        refuse("--verify: policy %d over nodes %s was asked for, the kernel holds policy %d over nodes %s; look at the cpuset",
               d->mode->policy, list_text(&d->nodes), policy, list_text(&got));
}

/* Returns only when the command can't be run. */
static int become(char **command)
{
    execvp(command[0], command);
    int error = errno;
    if (error == ENOENT && strchr(command[0], '/') && exists(command[0]))
        say("%s is there, but the interpreter that it names (#! line or dynamic loader) isn't; install that", command[0]);
    else
        say("%s can't be run: %s; look at its path and PATH, its mode and its mount", command[0], strerror(error));
    return error == ENOENT ? NOT_FOUND : CANNOT_EXECUTE;
}

/* ---- options -------------------------------------------------------------------------------------------------- */

static const char usage[] =
    "Usage: numaspread [OPTION]... [--] COMMAND [ARG]...\n"
    "Give COMMAND a NUMA memory policy, then become it.\n\n"
    "  -m, --mode MODE     interleave (default), weighted, preferred-many, bind or local\n"
    "  -n, --nodes LIST    a list like 0-1,8, or auto (default): allowed nodes that have memory and CPUs\n"
    "      --cpuless       auto also takes nodes without CPUs: CXL memory, but GPU memory too\n"
    "  -c, --cpus LIST     CPUs for COMMAND\n"
    "  -g, --gpu WHICH     bind COMMAND to a GPU's node; WHICH is a PCI address, a GPU- UUID, a number, or rank:\n"
    "                      the number in LOCAL_RANK, SLURM_LOCALID or OMPI_COMM_WORLD_LOCAL_RANK\n"
    "      --best-effort   run COMMAND even if the kernel refuses, and say so\n"
    "      --verify        read the policy back before COMMAND\n"
    "      --dry-run       print the decision, run nothing\n"
    "      --root DIR      read /sys, /proc and /dev under DIR: a capture of another machine\n"
    "  -v, --verbose       print the decision to standard error\n"
    "  -h, --help          print this\n"
    "  -V, --version       print the version\n\n"
    "NUMASPREAD_MODE, NUMASPREAD_BEST_EFFORT=1 and so on stand for the long options; the command line wins.\n"
    "Exit status: 125 numaspread failed, 126 COMMAND can't be run, 127 it isn't found; else COMMAND's own.\n";

static const struct option options[] = {
    { "mode", required_argument, NULL, MODE },         { "nodes", required_argument, NULL, NODES },
    { "cpus", required_argument, NULL, CPUS },         { "gpu", required_argument, NULL, GPU },
    { "root", required_argument, NULL, ROOT },         { "best-effort", no_argument, NULL, BEST_EFFORT },
    { "cpuless", no_argument, NULL, CPULESS },         { "dry-run", no_argument, NULL, DRY_RUN },
    { "verify", no_argument, NULL, VERIFY },           { "verbose", no_argument, NULL, VERBOSE },
    { "help", no_argument, NULL, HELP },               { "version", no_argument, NULL, VERSION },
    { NULL, 0, NULL, 0 },
};

static void read_environment(void)
{
    for (const struct option *o = options; o->val != HELP; o++) {
        char name[32] = "NUMASPREAD_";
        for (size_t i = 0, n = strlen(name); o->name[i]; i++)
            name[n + i] = o->name[i] == '-' ? '_' : (char)toupper((unsigned char)o->name[i]);
        const char *value = getenv(name);
        bool flag = o->has_arg == no_argument, off = !value || !*value || (flag && strcmp(value, "0") == 0);
        if (!off && flag && strcmp(value, "1") != 0)
            fail("%s is \"%s\"; set it to 1 or 0", name, value);
        opt[o->val] = off ? NULL : value;
    }
}

/* Returns the command. */
static char **read_options(int argc, char **argv)
{
    opterr = 0;
    for (int option; (option = getopt_long(argc, argv, "+:m:n:c:g:vhV", options, NULL)) != -1; opt[option] = optarg ? optarg : "1")
        if (option == '?' || option == ':')
            fail("option %s %s; numaspread --help lists them", argv[optind - 1],
                 option == ':' ? "needs a value" : "isn't known, or takes no value");
    if (opt[ROOT] && (!*opt[ROOT] || strcmp(opt[ROOT], "/") == 0))
        opt[ROOT] = NULL;
    if (optind >= argc && !opt[DRY_RUN] && !opt[HELP] && !opt[VERSION])
        fail("no command is given; write numaspread [OPTION]... [--] COMMAND [ARG]...");
    return argv + optind;
}

static int print(const char *text)
{
    if (write(STDOUT_FILENO, text, strlen(text)) != (ssize_t)strlen(text))
        fail("standard output can't be written (%s); free its device", strerror(errno));
    return EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
    static struct machine machine;
    static struct decision decision;

    read_environment();
    char **command = read_options(argc, argv);
    if (opt[HELP] || opt[VERSION])
        return print(opt[HELP] ? usage : "numaspread " PROGRAM_VERSION "\n");

    read_machine(&machine);
    choose_mode(&decision);
    if (opt[CPUS])
        decision.cpus = parse_list_option("cpus", opt[CPUS], MAX_CPUS);
    if (opt[GPU])
        choose_gpu_node(&decision, &machine);
    else
        choose_nodes(&decision, &machine);
    if (opt[DRY_RUN] || opt[VERBOSE])
        print_decision(opt[DRY_RUN] ? stdout : stderr, &decision, &machine);
    if (opt[DRY_RUN])
        return EXIT_SUCCESS;

    set_affinity(&decision);
    set_policy(&decision);
    if (opt[VERIFY])
        verify_policy(&decision);
    return become(command);
}
