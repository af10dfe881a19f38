/*
 * Copyright: gpufleet contributors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 *
 * refuse CALL[:ARG]=ERRNO... -- COMMAND: run COMMAND under a seccomp filter that answers these system calls (when
 * their first argument is ARG) with an error, as a container's profile, an emulator or an older kernel would.
 */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static const struct { const char *name; unsigned number; } calls[] = {
    { "set_mempolicy", SYS_set_mempolicy },
    { "get_mempolicy", SYS_get_mempolicy },
    { "sched_setaffinity", SYS_sched_setaffinity },
};

int main(int argc, char **argv)
{
    struct sock_filter filter[256];
    unsigned short n = 0;
    int i = 1;
    for (; i < argc && strcmp(argv[i], "--") != 0; i++) {
        char *error = strchr(argv[i], '='), *arg = strchr(argv[i], ':');
        size_t length = strcspn(argv[i], ":=");
        for (size_t c = 0; error && c < sizeof calls / sizeof *calls; c++)
            if (strncmp(argv[i], calls[c].name, length) == 0 && calls[c].name[length] == '\0') {
                filter[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
                filter[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, calls[c].number, 0, arg ? 3 : 1);
                if (arg) {
                    filter[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0]));
                    filter[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)atoi(arg + 1), 0, 1);
                }
                filter[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)atoi(error + 1));
            }
    }
    filter[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = { n, filter };
    if (i + 1 >= argc || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) {
        perror("refuse");
        return 99;
    }
    execvp(argv[i + 1], argv + i + 1);
    perror(argv[i + 1]);
    return 99;
}
