/*
 * Copyright: gpufleet contributors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 *
 * fuzz_list INPUTS SEED: the list parser of numaspread against a second one written another way, on random strings,
 * mutated lists and random sets. Stops at the first difference.
 */
#define main numaspread_main
#include "numaspread.c"
#undef main
#include <inttypes.h>

static uint64_t state;

static unsigned random_below(unsigned limit)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (unsigned)((state >> 16) % limit);
}

/* The grammar as a tokenizer: split at commas, then at the first dash, then every part must be 1 or more digits. */
static bool is_number(const char *s, size_t n, unsigned limit, unsigned *value)
{
    uint64_t v = 0;
    for (size_t i = 0; i < n; i++) {
        if (s[i] < '0' || s[i] > '9')
            return false;
        v = v * 10 + (uint64_t)(s[i] - '0');
        if (v > UINT32_MAX)
            v = UINT32_MAX;
    }
    *value = (unsigned)v;
    return n > 0 && v < limit;
}

static bool oracle(const char *s, unsigned limit, struct set *set)
{
    *set = empty;
    for (;;) {
        size_t n = strcspn(s, ",");
        const char *dash = memchr(s, '-', n);
        unsigned first, last;
        if (dash) {
            if (!is_number(s, (size_t)(dash - s), limit, &first) || !is_number(dash + 1, n - (size_t)(dash + 1 - s), limit, &last) || last < first)
                return false;
        } else {
            if (!is_number(s, n, limit, &first))
                return false;
            last = first;
        }
        for (unsigned id = first; id <= last; id++)
            set->word[id / 64] |= 1UL << id % 64;
        if (s[n] == '\0')
            return true;
        s += n + 1;
    }
}

static void make_input(char *s, size_t size, unsigned limit)
{
    static const char likely[] = "0123456789-,-,0123456789 \t\n+x:!/.^";
    size_t n = 0, items = 1 + random_below(6);
    if (random_below(4) == 0) { /* anything */
        for (n = random_below(24); items && n > 0; n--)
            *s++ = (char)(random_below(8) ? likely[random_below(sizeof likely - 1)] : 1 + (int)random_below(255));
        *s = '\0';
        return;
    }
    for (size_t i = 0; i < items; i++) { /* a list */
        unsigned a = random_below(random_below(50) ? limit : 3 * limit), b = a + random_below(40);
        n += (size_t)snprintf(s + n, size - n, random_below(2) ? "%s%u" : "%s%u-%u", i ? "," : "", a, b);
    }
    for (unsigned changes = random_below(3); n > 0 && changes > 0; changes--) { /* with a wrong byte here and there */
        size_t at = random_below((unsigned)n);
        switch (random_below(3)) {
        case 0: s[at] = likely[random_below(sizeof likely - 1)]; break;
        case 1: memmove(s + at, s + at + 1, n - at); n--; break;
        default: memmove(s + at + 1, s + at, n - at + 1); n++;
        }
    }
}

int main(int argc, char **argv)
{
    static char s[256];
    struct set set, expected, again;
    unsigned long inputs = argc > 1 ? strtoul(argv[1], NULL, 10) : 1000000, accepted = 0;
    state = argc > 2 ? strtoul(argv[2], NULL, 10) * 2654435761u + 88172645463325252u : 88172645463325252u;
    for (unsigned long i = 0; i < inputs; i++) {
        static const unsigned limits[] = { 1, 2, 64, 65, MAX_NODES, MAX_CPUS };
        unsigned limit = limits[random_below(6)];
        size_t at = 0;
        make_input(s, sizeof s, limit);
        const char *wrong = parse_list(s, limit, &set, &at);
        bool valid = oracle(s, limit, &expected);
        bool good = valid == !wrong && at <= strlen(s) && (wrong || is_equal(&set, &expected));
        if (good && valid) {
            accepted++;
            good = !parse_list(list_text(&set), limit, &again, &at) && is_equal(&set, &again);
        }
        if (!good) {
            printf("difference at input %lu: \"%s\" below %u: %s at %zu, expected %s\n", i, s, limit, wrong ? wrong : "accepted", at, valid ? "a list" : "an error");
            return 1;
        }
    }
    printf("%lu inputs, %lu lists\n", inputs, accepted);
    return accepted > inputs / 10 ? 0 : 1;
}
