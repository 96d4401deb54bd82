package cgroup

import "sync/atomic"

// OOM tells of a group's processes that were killed since it had no more memory.
// It is safe for concurrent use.
type OOM struct {
	group Group
	told  atomic.Int64
}

// NewOOM returns one that has told of none.
func NewOOM(g Group) *OOM { return &OOM{group: g} }

// Kills counts them, see [Group.OOMKills].
func (o *OOM) Kills() int64 {
	n := o.group.OOMKills()
	o.told.Store(n)
	return n
}

// Since counts those that Kills has not told of: one of which somebody knew
// already is no reason for what came later.
func (o *OOM) Since() int64 { return o.group.OOMKills() - o.told.Load() }

// Ever tells whether there was any.
func (o *OOM) Ever() bool { return o.told.Load() > 0 || o.group.OOMKills() > 0 }
