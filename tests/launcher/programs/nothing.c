/*
 * Copyright: gpufleet contributors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 *
 * A command that does nothing, and starts as fast as one can.
 */
int main(void)
{
    return 0;
}
