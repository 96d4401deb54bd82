package main

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/controld/controld/adapter"
	"github.com/controld/controld/rpc"
	"github.com/controld/controld/sandbox"
)

func (a *app) catCommand() *cobra.Command {
	return a.clientCommand(&cobra.Command{
		Use: "cat PATH", Short: "Print a file", Args: args(cobra.ExactArgs(1)),
	}, func(cmd *cobra.Command, sb *adapter.Sandbox, args []string) error {
		if a.client.json {
			c, err := sb.ReadFileBuffer(cmd.Context(), remotePath(args[0]), sandbox.ReadOptions{})
			if err != nil {
				return err
			}
			return a.print(&rpc.ReadResult{File: c})
		}
		s, err := sb.ReadFileStream(cmd.Context(), remotePath(args[0]), sandbox.ReadOptions{})
		if err != nil {
			return err
		}
		defer s.Close()
		_, err = io.Copy(a.stdout, s)
		return err
	})
}

// putBuffered is how much of stdin is held before put goes over to a stream.
const putBuffered = 8 << 20

func (a *app) putCommand() *cobra.Command {
	var opts sandbox.WriteOptions
	var mode string
	cmd := a.clientCommand(&cobra.Command{
		Use: "put PATH", Short: "Write standard input to a file, making its parents", Args: args(cobra.ExactArgs(1)),
	}, func(cmd *cobra.Command, sb *adapter.Sandbox, args []string) error {
		if mode != "" {
			n, err := strconv.ParseUint(mode, 8, 32)
			if err != nil {
				return usagef("--mode %q is no octal number", mode)
			}
			opts.Mode = sandbox.Some(uint32(n))
		}
		head, err := io.ReadAll(io.LimitReader(a.stdin, putBuffered))
		if err != nil {
			return err
		}
		var info sandbox.WriteInfo
		if len(head) < putBuffered {
			info, err = sb.WriteFile(cmd.Context(), remotePath(args[0]), head, opts)
		} else {
			opts.Parents = true
			info, err = sandbox.WriteStream(cmd.Context(), sb, remotePath(args[0]), io.MultiReader(bytes.NewReader(head), a.stdin), opts)
		}
		if err != nil || !a.client.json {
			return err
		}
		return a.print(&rpc.WriteResult{Info: info})
	})
	cmd.Flags().StringVar(&mode, "mode", "", "permission bits in octal; a file that exists keeps its own otherwise")
	cmd.Flags().StringVar(&opts.IfMatch, "if-match", "", "replace only the version with this etag")
	cmd.Flags().BoolVar(&opts.Sync, "sync", false, "let the file survive a crash of the host")
	return cmd
}

func (a *app) lsCommand() *cobra.Command {
	var long bool
	cmd := a.clientCommand(&cobra.Command{
		Use: "ls [PATH]", Short: "List a directory", Args: args(cobra.MaximumNArgs(1)),
	}, func(cmd *cobra.Command, sb *adapter.Sandbox, args []string) error {
		path := "."
		if len(args) > 0 && remotePath(args[0]) != "" {
			path = remotePath(args[0])
		}
		l, err := sb.ReadDir(cmd.Context(), path, sandbox.ReadDirOptions{})
		if err != nil {
			return err
		}
		if a.client.json {
			return a.print(&rpc.ReadDirResult{Listing: l})
		}
		if long {
			return a.listLong(cmd, sb, path, l.Names)
		}
		for _, name := range l.Names {
			if _, err := fmt.Fprintln(a.stdout, name); err != nil {
				return err
			}
		}
		return nil
	})
	cmd.Flags().BoolVarP(&long, "long", "l", false, "with type, mode, size and time")
	return cmd
}

// listLong stats every name; one that has gone meanwhile is left out.
func (a *app) listLong(cmd *cobra.Command, sb *adapter.Sandbox, path string, names []string) error {
	w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, name := range names {
		st, err := sb.Stat(cmd.Context(), strings.TrimSuffix(path, "/")+"/"+name, sandbox.StatOptions{NoFollow: true})
		if sandbox.KindOf(err) == sandbox.KindNotFound {
			continue
		}
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t  %s\n", modeText(st), sizeText(st), timeText(st), name)
	}
	return w.Flush()
}

// modeText is like that of ls, with ? for what is not known.
func modeText(st sandbox.FileStat) string {
	letter := map[sandbox.FileType]string{sandbox.TypeFile: "-", sandbox.TypeDirectory: "d", sandbox.TypeSymlink: "l"}[st.Type]
	if letter == "" {
		letter = "?"
	}
	if !st.Mode.Known {
		return letter + "?????????"
	}
	return letter + fs.FileMode(st.Mode.Value).String()[1:]
}

func sizeText(st sandbox.FileStat) string {
	if !st.Size.Known {
		return "?"
	}
	return strconv.FormatInt(st.Size.Value, 10)
}

func timeText(st sandbox.FileStat) string {
	if !st.ModTime.Known {
		return "?"
	}
	return st.ModTime.Value.UTC().Format(time.RFC3339)
}

func (a *app) statCommand() *cobra.Command {
	var opts sandbox.StatOptions
	cmd := a.clientCommand(&cobra.Command{
		Use: "stat PATH", Short: "Describe a path", Args: args(cobra.ExactArgs(1)),
	}, func(cmd *cobra.Command, sb *adapter.Sandbox, args []string) error {
		st, err := sb.Stat(cmd.Context(), remotePath(args[0]), opts)
		if err != nil {
			return err
		}
		if a.client.json {
			return a.print(&rpc.StatResult{Stat: st})
		}
		link := ""
		if st.IsSymlink.Known && st.IsSymlink.Value {
			link = " (through a symlink)"
		}
		_, err = fmt.Fprintf(a.stdout, "type  %s%s\nmode  %s\nsize  %s\nmtime %s\netag  %s\n",
			st.Type, link, modeText(st), sizeText(st), timeText(st), st.ETag)
		return err
	})
	cmd.Flags().BoolVar(&opts.NoFollow, "no-follow", false, "describe a link itself")
	return cmd
}

func (a *app) mkdirCommand() *cobra.Command {
	var opts sandbox.MkdirOptions
	cmd := a.clientCommand(&cobra.Command{
		Use: "mkdir PATH...", Short: "Make directories", Args: args(cobra.MinimumNArgs(1)),
	}, func(cmd *cobra.Command, sb *adapter.Sandbox, args []string) error {
		return a.each(args, func(path string) error { return sb.Mkdir(cmd.Context(), path, opts) })
	})
	cmd.Flags().BoolVarP(&opts.Recursive, "parents", "p", false, "make parents too; a directory that exists is no error")
	return cmd
}

func (a *app) rmCommand() *cobra.Command {
	var opts sandbox.RmOptions
	cmd := a.clientCommand(&cobra.Command{
		Use: "rm PATH...", Short: "Remove files or, with -r, trees", Args: args(cobra.MinimumNArgs(1)),
	}, func(cmd *cobra.Command, sb *adapter.Sandbox, args []string) error {
		return a.each(args, func(path string) error { return sb.Rm(cmd.Context(), path, opts) })
	})
	cmd.Flags().BoolVarP(&opts.Recursive, "recursive", "r", false, "remove directories with all that is in them")
	cmd.Flags().BoolVarP(&opts.Force, "force", "f", false, "a missing path is no error")
	return cmd
}

// each runs one call a path and prints the empty result of the wire.
func (a *app) each(args []string, call func(path string) error) error {
	for _, arg := range args {
		if err := call(remotePath(arg)); err != nil {
			return err
		}
		if a.client.json {
			if err := a.print(&rpc.Empty{}); err != nil {
				return err
			}
		}
	}
	return nil
}

func (a *app) existsCommand() *cobra.Command {
	return a.clientCommand(&cobra.Command{
		Use: "exists PATH", Short: "Tell whether a path leads to something (exit code 3 where not)", Args: args(cobra.ExactArgs(1)),
	}, func(cmd *cobra.Command, sb *adapter.Sandbox, args []string) error {
		ok, err := sb.Exists(cmd.Context(), remotePath(args[0]), sandbox.ExistsOptions{})
		if err != nil {
			return err
		}
		if a.client.json {
			err = a.print(&rpc.ExistsResult{Exists: ok})
		} else {
			_, err = fmt.Fprintln(a.stdout, ok)
		}
		if err == nil && !ok {
			return exitError(exitNotFound)
		}
		return err
	})
}
