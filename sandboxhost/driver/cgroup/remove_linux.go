package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// again is how often a group that still holds a process is tried to be removed:
// the kernel tells nobody of the end of the last one below version 1.
const again = 2 * time.Millisecond

// Remove removes a group that holds no group, below every controller, once its
// last process has ended; the end of ctx ends the waiting. A group that is not
// there is removed.
func (g Group) Remove(ctx context.Context) error {
	if g == "" || g == "/" {
		return nil
	}
	below, err := filepath.Glob(filepath.Join(mounted, "*", "cgroup.procs"))
	if err != nil {
		return err
	}
	tops := []string{mounted}
	for _, one := range below {
		tops = append(tops, filepath.Dir(one))
	}
	var failed []error
	for _, top := range tops {
		failed = append(failed, remove(ctx, filepath.Join(top, string(g))))
	}
	return errors.Join(failed...)
}

func remove(ctx context.Context, dir string) error {
	tick := time.NewTicker(again)
	defer tick.Stop()
	for {
		err := os.Remove(dir)
		switch {
		case err == nil, errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
			return nil
		case !errors.Is(err, syscall.EBUSY):
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", err, ctx.Err())
		}
	}
}
