// Package seccomp is which system calls a sandbox may make: what the Docker
// engine allows a container without capabilities, which has no io_uring, no
// keyrings, no namespaces of its own and no kernel modules. It is one profile,
// told as an OCI runtime reads it and as a program for the kernel.
//
// What does not belong here: who applies it.
package seccomp

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"

	filter "github.com/elastic/go-seccomp-bpf"
	"github.com/elastic/go-seccomp-bpf/arch"
	"github.com/moby/profiles/seccomp"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/net/bpf"
)

// Profile returns the profile for an OCI runtime. It is that of the machine's
// own architecture, as [Program]: a program of another is killed.
func Profile() (*specs.LinuxSeccomp, error) {
	none := &specs.Spec{Process: &specs.Process{Capabilities: &specs.LinuxCapabilities{}}}
	p, err := seccomp.GetDefaultProfile(none)
	if err == nil && len(p.Architectures) > 1 {
		p.Architectures = p.Architectures[:1] // the others follow
	}
	return p, err
}

// Docker returns the profile as a Docker engine reads it, in JSON.
func Docker() (string, error) {
	text, err := json.Marshal(seccomp.DefaultProfile())
	return string(text), err
}

// Program returns the profile as the kernel reads it: struct sock_filter after
// struct sock_filter, see seccomp(2). System calls of another architecture than
// this program's own are refused.
func Program() ([]byte, error) {
	profile, err := Profile()
	if err != nil {
		return nil, err
	}
	policy, err := policyOf(profile)
	if err != nil {
		return nil, err
	}
	instructions, err := policy.Assemble()
	if err != nil {
		return nil, fmt.Errorf("seccomp: %w", err)
	}
	raw, err := bpf.Assemble(instructions)
	if err != nil {
		return nil, fmt.Errorf("seccomp: %w", err)
	}
	var out bytes.Buffer
	for _, i := range raw {
		binary.Write(&out, binary.NativeEndian, i)
	}
	return out.Bytes(), nil
}

// policyOf says the profile in the words of the assembler, without the names of
// other architectures.
func policyOf(profile *specs.LinuxSeccomp) (*filter.Policy, error) {
	machine, err := arch.GetInfo("")
	if err != nil {
		return nil, fmt.Errorf("seccomp: %w", err)
	}
	p := &filter.Policy{DefaultAction: filter.ActionErrno}
	seen := make(map[string]bool)
	for _, rule := range profile.Syscalls {
		action, err := actionOf(rule)
		if err != nil {
			return nil, err
		}
		group := filter.SyscallGroup{Action: action}
		conditions, err := conditionsOf(rule.Args)
		if err != nil {
			return nil, err
		}
		for _, name := range rule.Names {
			if _, known := machine.SyscallNames[name]; !known || seen[name] {
				continue
			}
			if len(conditions) > 0 {
				group.NamesWithCondtions = append(group.NamesWithCondtions, filter.NameWithConditions{Name: name, Conditions: conditions})
			} else {
				seen[name] = true
				group.Names = append(group.Names, name)
			}
		}
		if len(group.Names)+len(group.NamesWithCondtions) > 0 {
			p.Syscalls = append(p.Syscalls, group)
		}
	}
	return p, nil
}

func actionOf(rule specs.LinuxSyscall) (filter.Action, error) {
	switch {
	case rule.Action == specs.ActAllow:
		return filter.ActionAllow, nil
	case rule.Action == specs.ActErrno && rule.ErrnoRet != nil:
		return filter.ActionErrno&^0xffff | filter.Action(*rule.ErrnoRet), nil
	case rule.Action == specs.ActErrno:
		return filter.ActionErrno, nil
	}
	return 0, fmt.Errorf("seccomp: %s for %v is not known here", rule.Action, rule.Names)
}

func conditionsOf(args []specs.LinuxSeccompArg) (filter.ArgumentConditions, error) {
	var all filter.ArgumentConditions
	for _, a := range args {
		c := filter.Condition{Argument: uint32(a.Index), Value: a.Value}
		switch {
		case a.Op == specs.OpEqualTo:
			c.Operation = filter.Equal
		case a.Op == specs.OpNotEqual:
			c.Operation = filter.NotEqual
		case a.Op == specs.OpLessThan:
			c.Operation = filter.LessThan
		case a.Op == specs.OpMaskedEqual && a.ValueTwo == 0:
			c.Operation = filter.BitsNotSet
		default:
			return nil, fmt.Errorf("seccomp: the condition %s is not known here", a.Op)
		}
		all = append(all, c)
	}
	return all, nil
}
