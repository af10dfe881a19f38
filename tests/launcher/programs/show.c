/*
 * Copyright: gpufleet contributors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 *
 * What a command finds when it starts, as one line of JSON: its memory policy, CPUs, arguments and open descriptors.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    int policy = -1;
    unsigned long nodes[16] = { 0 };
    cpu_set_t cpus;
    const char *separator = "";
    syscall(SYS_get_mempolicy, &policy, nodes, 1025UL, NULL, 0UL);
    CPU_ZERO(&cpus);
    sched_getaffinity(0, sizeof cpus, &cpus);
    printf("{\"pid\": %d, \"policy\": %d, \"nodes\": [", (int)getpid(), policy);
    for (unsigned node = 0; node < 1024; node++)
        if (nodes[node / 64] >> node % 64 & 1) {
            printf("%s%u", separator, node);
            separator = ", ";
        }
    printf("], \"cpus\": [");
    separator = "";
    for (unsigned cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &cpus)) {
            printf("%s%u", separator, cpu);
            separator = ", ";
        }
    printf("], \"arguments\": %d, \"bytes\": %zu, \"descriptors\": [", argc - 1, argc > 1 ? strlen(argv[1]) : 0);
    separator = "";
    for (int fd = 0; fd < 64; fd++)
        if (fcntl(fd, F_GETFD) != -1) {
            printf("%s%d", separator, fd);
            separator = ", ";
        }
    puts("]}");
    return 0;
}
