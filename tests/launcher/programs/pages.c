/*
 * Copyright: gpufleet contributors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 *
 * pages MEBIBYTES: touch that much memory and print on which nodes its pages lie, "NODE PAGES" a line.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    static unsigned long on_node[1024];
    static void *address[4096];
    static int status[4096];
    size_t page = (size_t)sysconf(_SC_PAGESIZE), size = strtoul(argc > 1 ? argv[1] : "64", NULL, 10) << 20, total = size / page;
    char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED || madvise(memory, size, MADV_NOHUGEPAGE) == -1) {
        perror("pages");
        return 1;
    }
    for (size_t i = 0; i < total; i++)
        memory[i * page] = 1;
    for (size_t done = 0, n; done < total; done += n) {
        n = total - done < 4096 ? total - done : 4096;
        for (size_t i = 0; i < n; i++)
            address[i] = memory + (done + i) * page;
        if (syscall(SYS_move_pages, 0, n, address, NULL, status, 0) == -1) {
            perror("pages: move_pages");
            return 1;
        }
        for (size_t i = 0; i < n; i++)
            if (status[i] >= 0 && status[i] < 1024)
                on_node[status[i]]++;
    }
    for (unsigned node = 0; node < 1024; node++)
        if (on_node[node])
            printf("%u %lu\n", node, on_node[node]);
    return 0;
}
