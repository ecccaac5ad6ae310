/*
 * NVTX: ranges and marks of a library that has NVTX in it become annotations. The library here
 * is this program, with the tables of NVTX 3 as it lays them out.
 */
#include "check.h"

#include <unistd.h>
#include <wchar.h>

typedef void (*function)(void);

/* The tables. */
typedef struct {
    size_t struct_size;
    int (*get_module_function_table)(int module, function ***slots, unsigned *size);
} callbacks;

typedef struct {
    size_t struct_size;
    uint32_t version;
    uint32_t reserved;
    void (*set_injection_version)(uint32_t version);
} version_info;

typedef struct {
    uint16_t version;
    uint16_t size;
    uint32_t category;
    int32_t color_type;
    uint32_t color;
    int32_t payload_type;
    int32_t reserved;
    uint64_t payload;
    int32_t message_type;
    const void *message;
} attributes;

typedef const void *(*export_table)(uint32_t number);

#ifdef __cplusplus
extern "C" {
#endif
int InitializeInjectionNvtx2(export_table get);
#ifdef __cplusplus
}
#endif

/* Numbers of modules and of the functions in them. */
enum { CORE = 1, CORE2 = 5, MODULES = 7, MOST_FUNCTIONS = 16 };
enum { MARK_EX = 1, MARK_A, MARK_W, START_EX, START_A, START_W, END, PUSH_EX, PUSH_A, PUSH_W, POP };
enum { DOMAIN_MARK = 1, DOMAIN_START, DOMAIN_END, DOMAIN_PUSH, DOMAIN_POP };
enum { REGISTER_A = 10, REGISTER_W, CREATE_A, CREATE_W };
enum { ASCII = 1, UNICODE, REGISTERED };

static function implementations[MODULES][MOST_FUNCTIONS];
static function *slots[MODULES][MOST_FUNCTIONS + 1];
static unsigned slots_given;
static uint32_t injection_version;
static int has_tables;
static char path[200];

static int get_slots(int module, function ***out, unsigned *size)
{
    if (module < 0 || module >= MODULES) {
        return 0;
    }
    *out = slots[module];
    *size = slots_given;
    return 1;
}

static void set_version(uint32_t version)
{
    injection_version = version;
}

static const void *get_table(uint32_t number)
{
    static const callbacks first = {sizeof(callbacks), get_slots};
    static const version_info third = {sizeof(version_info), 3, 0, set_version};
    if (!has_tables) {
        return NULL;
    }
    return number == 1 ? (const void *)&first : number == 3 ? (const void *)&third : NULL;
}

/* As NVTX is before it has looked for a tool; the last slot is never set. */
static void begin(unsigned given)
{
    memset(implementations, 0, sizeof implementations);
    for (int module = 0; module < MODULES; module++) {
        for (int number = 1; number < MOST_FUNCTIONS; number++) {
            slots[module][number] = &implementations[module][number];
        }
    }
    slots_given = given;
    has_tables = 1;
}

static int is_set(int module, int number)
{
    return implementations[module][number] != NULL;
}

static void what_is_no_nvtx_is_refused(void)
{
    CHECK(InitializeInjectionNvtx2(NULL) == 0);
    CHECK(InitializeInjectionNvtx2(get_table) == 0);
    begin(0);
    CHECK(InitializeInjectionNvtx2(get_table) == 0);
}

static void no_slot_beyond_those_given_is_set(void)
{
    begin(MARK_W);
    CHECK(InitializeInjectionNvtx2(get_table) == 1);
    CHECK(is_set(CORE, MARK_EX) && is_set(CORE, MARK_A) && !is_set(CORE, MARK_W));
    CHECK(is_set(CORE2, DOMAIN_MARK) && !is_set(CORE2, DOMAIN_PUSH));
}

static void exactly_what_is_taken_is_set(void)
{
    begin(MOST_FUNCTIONS);
    CHECK(InitializeInjectionNvtx2(get_table) == 1);
    CHECK(injection_version == 3);
    for (int module = 0; module < MODULES; module++) {
        for (int number = 0; number < MOST_FUNCTIONS; number++) {
            const int in_core = module == CORE && ((number >= MARK_EX && number <= MARK_W) ||
                                                   (number >= PUSH_EX && number <= POP));
            const int in_core2 =
                module == CORE2 &&
                (number == DOMAIN_MARK || number == DOMAIN_PUSH || number == DOMAIN_POP ||
                 (number >= REGISTER_A && number <= CREATE_W));
            CHECK(is_set(module, number) == (in_core || in_core2));
        }
    }
}

/* Calls, each through the slot of its function. */
static int push(const char *name)
{
    return ((int (*)(const char *))implementations[CORE][PUSH_A])(name);
}

static int pop(void)
{
    return ((int (*)(void))implementations[CORE][POP])();
}

static attributes named(int type, const void *message)
{
    attributes made;
    memset(&made, 0, sizeof made);
    made.version = 3;
    made.size = sizeof made;
    made.message_type = type;
    made.message = message;
    return made;
}

static int domain_push(const void *domain, const attributes *with)
{
    typedef int (*type)(const void *, const attributes *);
    return ((type)implementations[CORE2][DOMAIN_PUSH])(domain, with);
}

static void domain_mark(const void *domain, const attributes *with)
{
    typedef void (*type)(const void *, const attributes *);
    ((type)implementations[CORE2][DOMAIN_MARK])(domain, with);
}

static int domain_pop(const void *domain)
{
    return ((int (*)(const void *))implementations[CORE2][DOMAIN_POP])(domain);
}

static const void *domain_of(const char *name)
{
    return ((const void *(*)(const char *))implementations[CORE2][CREATE_A])(name);
}

static const void *string_of(const void *domain, const char *text)
{
    typedef const void *(*type)(const void *, const char *);
    return ((type)implementations[CORE2][REGISTER_A])(domain, text);
}

/* The profile so far, as JSON. */
static char *profile(void)
{
    CHECK_OK(genesis_profile_write(path));
    FILE *file = fopen(path, "rb");
    CHECK(file != NULL && fseek(file, 0, SEEK_END) == 0);
    const long bytes_in_file = ftell(file);
    CHECK(bytes_in_file > 0 && fseek(file, 0, SEEK_SET) == 0);
    const size_t bytes = (size_t)bytes_in_file;
    char *text = (char *)malloc(bytes + 1);
    CHECK(text != NULL && fread(text, 1, bytes, file) == bytes);
    text[bytes] = '\0';
    fclose(file);
    return text;
}

static void without_a_profile_ranges_leave_nothing(void)
{
    CHECK(push("unseen") == -2 && pop() == -2);
    CHECK_OK(genesis_profile_start());
    char *text = profile();
    CHECK(strstr(text, "unseen") == NULL);
    free(text);
}

static void ranges_and_marks_are_in_the_profile(void)
{
    const void *domain = domain_of("loader");
    const void *string = string_of(domain, "read a batch");
    CHECK(domain != NULL && domain == domain_of("loader"));
    CHECK(string != NULL && string == string_of(domain, "read a batch"));
    const attributes ascii = named(ASCII, "backward");
    const attributes wide = named(UNICODE, L"gr\u00fc\u00df");
    const attributes registered = named(REGISTERED, string);
    const attributes without = named(0, NULL);
    attributes too_short = named(ASCII, "cut");
    too_short.size = 40;

    CHECK(push("forward") == -2);
    CHECK(((int (*)(const wchar_t *))implementations[CORE][PUSH_W])(L"wide") == -2);
    CHECK(((int (*)(const attributes *))implementations[CORE][PUSH_EX])(&ascii) == -2);
    CHECK(domain_push(domain, &registered) == -2);
    CHECK(domain_push(domain, &without) == -2);
    CHECK(domain_push(NULL, &too_short) == -2);
    CHECK(domain_pop(NULL) == -2 && domain_pop(domain) == -2 && domain_pop(domain) == -2);
    CHECK(pop() == -2 && pop() == -2 && pop() == -2);
    ((void (*)(const char *))implementations[CORE][MARK_A])("step 12");
    ((void (*)(const wchar_t *))implementations[CORE][MARK_W])(L"wide mark");
    ((void (*)(const attributes *))implementations[CORE][MARK_EX])(&wide);
    domain_mark(domain, &wide);

    char *text = profile();
    /* clang-format off */
    const char *const names[] = {
        "\"forward\"", "\"wide\"",      "\"backward\"", "\"loader: read a batch\"",
        "\"step 12\"", "\"wide mark\"", "\"(range)\"",  "\"loader: (range)\"",
        "\"gr\xc3\xbc\xc3\x9f\"",       "\"loader: gr\xc3\xbc\xc3\x9f\"",
    };
    /* clang-format on */
    for (size_t n = 0; n < LENGTH(names); n++) {
        if (strstr(text, names[n]) == NULL) {
            fprintf(stderr, "%s is not in the profile\n", names[n]);
            exit(1);
        }
    }
    CHECK(strstr(text, "cut") == NULL);
    free(text);
}

/* CUB's ranges come by the thousand. */
static void the_domain_of_cub_is_left_out(void)
{
    const void *domain = domain_of("CCCL");
    const attributes ascii = named(ASCII, "cub::DeviceScan");
    CHECK(domain != NULL);
    CHECK(domain_push(domain, &ascii) == -2 && domain_pop(domain) == -2);
    char *text = profile();
    CHECK(strstr(text, "DeviceScan") == NULL);
    free(text);
}

int main(void)
{
    const char *folder = getenv("TMPDIR");
    snprintf(path, sizeof path, "%s/genesis-nvtx-%ld.json", folder != NULL ? folder : "/tmp",
             (long)getpid());
    what_is_no_nvtx_is_refused();
    no_slot_beyond_those_given_is_set();
    exactly_what_is_taken_is_set();
    without_a_profile_ranges_leave_nothing();
    ranges_and_marks_are_in_the_profile();
    the_domain_of_cub_is_left_out();
    CHECK_OK(genesis_profile_stop());
    CHECK(remove(path) == 0);
    return 0;
}
