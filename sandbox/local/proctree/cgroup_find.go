//go:build linux

package proctree

import (
	"bufio"
	"os"
	"path/filepath"
	"strings"
)

// ownCgroup finds the directory of this process's cgroup of version 2, which
// is mounted alone or beside the hierarchies of version 1.
func ownCgroup() (string, bool) {
	own, ok := lineOf("/proc/self/cgroup", func(line string) (string, bool) { return strings.CutPrefix(line, "0::") })
	if !ok {
		return "", false
	}
	return lineOf("/proc/self/mountinfo", func(line string) (string, bool) {
		fields := strings.Fields(line)
		for i, field := range fields {
			if field != "-" || i < 6 || i+1 >= len(fields) || fields[i+1] != "cgroup2" {
				continue
			}
			return belowMount(unescape(fields[3]), unescape(fields[4]), own)
		}
		return "", false
	})
}

// belowMount returns where a cgroup is found under a mount that shows the
// hierarchy from top on.
func belowMount(top, mount, own string) (string, bool) {
	rel, err := filepath.Rel(top, own)
	if err != nil || rel == ".." || strings.HasPrefix(rel, "../") {
		return "", false
	}
	dir := filepath.Join(mount, rel)
	_, err = os.Stat(filepath.Join(dir, "cgroup.procs"))
	return dir, err == nil
}

// unescape undoes the octal escapes of mountinfo.
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

func lineOf(file string, match func(string) (string, bool)) (string, bool) {
	f, err := os.Open(file)
	if err != nil {
		return "", false
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if found, ok := match(lines.Text()); ok {
			return found, true
		}
	}
	return "", false
}
