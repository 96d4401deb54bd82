// Package docker is the driver that makes sandboxes with a Docker engine, or
// Podman's socket that speaks the same, on this host: containers of any image,
// with users of their own, a read-only root, the engine's limits, no
// capabilities, a system call filter.
//
// The agent and the directory of its socket are bound into the container, so
// the engine is asked for the container's life alone and moves no byte of the
// sandbox's. What does not belong here: engines on other machines.
package docker
