package integration

import "golang.org/x/sys/unix"

// exchange swaps two names in one step, see renameatx_np(2).
func exchange(a, b string) {
	unix.RenameatxNp(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_SWAP)
}
