/* Of the host alone. */
int of_the_host(void) { return 1; }
