//go:build linux

package proctree

// parentsFirst orders processes so that none comes before its parent.
func parentsFirst(keys []key, parentOf func(pid int) int) []key {
	there := make(map[int]bool)
	for _, k := range keys {
		there[k.pid] = true
	}
	children, ordered := make(map[int][]key), make([]key, 0, len(keys))
	for _, k := range keys {
		if parent := parentOf(k.pid); there[parent] {
			children[parent] = append(children[parent], k)
		} else {
			ordered = append(ordered, k)
		}
	}
	for i := 0; i < len(ordered); i++ {
		pid := ordered[i].pid
		ordered = append(ordered, children[pid]...)
		delete(children, pid)
	}
	for _, rest := range children { // numbers that changed hands meanwhile
		ordered = append(ordered, rest...)
	}
	return ordered
}

// parentOf returns the parent's number, 0 where there is none.
func parentOf(pid int) int {
	p, _ := readProc(pid)
	return p.ppid
}
