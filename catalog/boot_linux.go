package catalog

import (
	"os"
	"strings"
	"sync"
)

// boot identifies this boot of the machine: what was not synced during an earlier one
// may be lost.
var boot = sync.OnceValue(func() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
})
