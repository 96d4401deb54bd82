package goals

import (
	"os/exec"
	"runtime"
)

// busy keeps every core busy with processes that do nothing else.
type busy []*exec.Cmd

func keepBusy() (busy, error) {
	var b busy
	for range runtime.NumCPU() {
		cmd := exec.Command("/bin/sh", "-c", "while :; do :; done")
		if err := cmd.Start(); err != nil {
			b.end()
			return nil, err
		}
		b = append(b, cmd)
	}
	return b, nil
}

func (b busy) end() {
	for _, cmd := range b {
		cmd.Process.Kill()
		cmd.Wait()
	}
}
