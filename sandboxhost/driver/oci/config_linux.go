package oci

import (
	"encoding/json"
	"fmt"
	"os"
	"path"
	"path/filepath"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/controld/controld/sandboxhost"
	"github.com/controld/controld/sandboxhost/driver/hostroot"
	"github.com/controld/controld/sandboxhost/driver/launch"
	"github.com/controld/controld/sandboxhost/driver/seccomp"
)

// specVersion is as old as the oldest runtime in use reads: crun 1.8 refuses
// what it does not know.
const specVersion = "1.0.2"

// writeConfig writes the bundle's config.json into the directory of an
// instance. at is the stage from which its parts are seen.
func writeConfig(spec sandboxhost.Spec, d Driver, at string) error {
	filter, err := seccomp.Profile()
	if err != nil {
		return err
	}
	c := specs.Spec{
		Version:  specVersion,
		Hostname: spec.Sandbox,
		Root:     &specs.Root{Path: filepath.Join(at, "root"), Readonly: true},
		Process:  d.process(spec),
		Mounts:   d.mounts(spec, at),
		Linux: &specs.Linux{
			Namespaces:    namespaces(spec.Box.Network),
			UIDMappings:   []specs.LinuxIDMapping{{ContainerID: 0, HostID: uint32(spec.IDs.Base), Size: uint32(spec.IDs.Count)}},
			GIDMappings:   []specs.LinuxIDMapping{{ContainerID: 0, HostID: uint32(spec.IDs.Base), Size: uint32(spec.IDs.Count)}},
			CgroupsPath:   d.cgroup(spec),
			Resources:     resources(spec.Box),
			Seccomp:       filter,
			MaskedPaths:   masked,
			ReadonlyPaths: readonly,
		},
	}
	text, err := json.Marshal(c)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(spec.Run, "config.json"), text, 0o600)
}

// cgroup is the path of an instance's own, below every controller.
func (d Driver) cgroup(spec sandboxhost.Spec) string {
	return path.Join("/", d.CgroupParent, "controld-"+spec.ID)
}

// process is the agent: as root of its users with what it needs to start and
// end the workload's processes, else as the workload's user without any
// privilege.
func (d Driver) process(spec sandboxhost.Spec) *specs.Process {
	listen := launch.HandedURL
	if !d.handsOver() {
		listen = launch.SocketURL(hostroot.Link)
	}
	p := &specs.Process{
		User:            specs.User{UID: hostroot.UID, GID: hostroot.GID},
		Cwd:             "/",
		Capabilities:    &specs.LinuxCapabilities{},
		NoNewPrivileges: true,
	}
	var as []string
	if d.Agent.Apart {
		as = launch.As(hostroot.UID, hostroot.GID, spec.Box.Processes, hostroot.State)
		p.User = specs.User{}
		has := launch.Capabilities()
		p.Capabilities = &specs.LinuxCapabilities{Bounding: has, Effective: has, Permitted: has}
	}
	p.Args = d.Agent.Inside(hostroot.Agent, hostroot.Workspace, listen, spec.Secret, as...)
	if !d.handsOver() {
		return p
	}
	for name, value := range launch.Handed(1, 1) {
		p.Env = append(p.Env, name+"="+value)
	}
	return p
}

func namespaces(network sandboxhost.Network) []specs.LinuxNamespace {
	list := []specs.LinuxNamespace{
		{Type: specs.UserNamespace}, {Type: specs.PIDNamespace}, {Type: specs.IPCNamespace},
		{Type: specs.UTSNamespace}, {Type: specs.MountNamespace}, {Type: specs.CgroupNamespace},
	}
	if network != sandboxhost.NetworkHost {
		list = append(list, specs.LinuxNamespace{Type: specs.NetworkNamespace})
	}
	return list
}

// resources are the limits that the cgroup holds.
func resources(box sandboxhost.Box) *specs.LinuxResources {
	r := &specs.LinuxResources{Devices: []specs.LinuxDeviceCgroup{{Allow: false, Access: "rwm"}}}
	if box.Memory > 0 {
		// With swap the limit would be another one.
		r.Memory = &specs.LinuxMemory{Limit: &box.Memory, Swap: &box.Memory}
	}
	if box.Processes > 0 {
		r.Pids = &specs.LinuxPids{Limit: &box.Processes}
	}
	if box.CPUs > 0 {
		period := uint64(100_000)
		quota := int64(box.CPUs * float64(period))
		r.CPU = &specs.LinuxCPU{Period: &period, Quota: &quota}
	}
	return r
}

// mounts are what is seen in the container's root.
func (d Driver) mounts(spec sandboxhost.Spec, at string) []specs.Mount {
	temp := fmt.Sprintf("size=%d", hostroot.TempBytes)
	list := []specs.Mount{
		{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"nosuid", "noexec", "nodev"}},
		{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "strictatime", "mode=755", "size=64k"}},
		{Destination: "/dev/pts", Type: "devpts", Source: "devpts", Options: []string{"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"}},
		{Destination: "/dev/shm", Type: "tmpfs", Source: "shm", Options: []string{"nosuid", "noexec", "nodev", "mode=1777", temp}},
		{Destination: "/tmp", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "nodev", "mode=1777", temp}},
	}
	if spec.Box.Network != sandboxhost.NetworkHost {
		// A namespace of users may not mount that of a network it does not own.
		list = append(list, specs.Mount{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: []string{"nosuid", "noexec", "nodev", "ro"}})
	}
	if !d.isGVisor() {
		return list // the others are in the root already
	}
	for _, s := range d.shows(spec, at) {
		how := "ro"
		if s.writable {
			how = "rw"
		}
		list = append(list, bind(s.source, s.path, how))
	}
	return append(list, bind(filepath.Join(at, "link"), hostroot.Link, "rw"))
}

// show is a path of the host's that is seen in the container.
type show struct {
	source, path string
	writable     bool
}

// shows lists them. at is the stage.
func (d Driver) shows(spec sandboxhost.Spec, at string) []show {
	var all []show
	for _, e := range entries(spec.Box) {
		if e.Source != "" {
			all = append(all, show{source: e.Source, path: e.Path})
		}
	}
	if d.Agent.Apart {
		all = append(all, show{source: filepath.Join(at, "state"), path: hostroot.State, writable: true})
	}
	return append(all, show{source: filepath.Join(at, "agent"), path: hostroot.Agent},
		show{source: filepath.Join(at, "workspace"), path: hostroot.Workspace, writable: true})
}

func bind(source, at, how string) specs.Mount {
	return specs.Mount{Destination: at, Type: "bind", Source: source, Options: []string{"rbind", "rprivate", "nosuid", "nodev", how}}
}

// What of /proc and /sys tells of the host, or changes it.
var (
	masked = []string{"/proc/acpi", "/proc/asound", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list",
		"/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/sys/firmware", "/sys/devices/virtual/powercap"}
	readonly = []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
)
