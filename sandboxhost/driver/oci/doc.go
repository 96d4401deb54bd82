// Package oci is the driver that makes sandboxes with an OCI runtime, runc or
// crun: containers with users of their own, a read-only root, limits of memory,
// processes and processors that cgroups hold, no capabilities, a system call
// filter. It needs root.
//
// What does not belong here: images, which give a container another root.
package oci
