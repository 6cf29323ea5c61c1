package catalog

import (
	"os"
	"strings"
	"sync"
)

// boot tells this run of the machine from all others: what was not synced in another one
// may be lost.
var boot = sync.OnceValue(func() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
})
