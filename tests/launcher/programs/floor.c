/*
 * Copyright: gpufleet contributors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 *
 * The least that a launcher can do: become its command.
 */
#include <unistd.h>

int main(int argc, char **argv)
{
    if (argc > 1)
        execvp(argv[1], argv + 1);
    return 127;
}
