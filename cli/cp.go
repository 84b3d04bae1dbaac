// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"navix.sh/atoll/pkg/client"
	"navix.sh/atoll/pkg/clip"
	"navix.sh/atoll/pkg/problem"
)

func cpCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "cp LOCAL ID:PATH | ID:PATH LOCAL",
		Short: "Copy a file or a folder into a sandbox, or out of it",
		Long: `Copy a file or a folder into a sandbox, or out of it. PATH is absolute. A destination that ends with a slash, or is a folder of
this machine, gets the file under its name; a folder's content becomes that of the destination. LOCAL may be -, for what atollctl reads or
prints. A file of this machine appears, or is replaced, once it is whole; one in a folder that takes no new files is written in place.

Files and folders go by the sandbox's daemon. Where there is none, or an older one, they need tar in the sandbox's image, which exec runs.`,
		Example: `  atollctl cp data.csv 01j9zq3p3k5m8x7c2v4b6n8d0f-east:/tmp/
  atollctl cp src 01j9zq3p3k5m8x7c2v4b6n8d0f-east:/work/src
  atollctl cp 01j9zq3p3k5m8x7c2v4b6n8d0f-east:/work/result.json .`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			from, fromRemote := remoteOf(args[0])
			to, toRemote := remoteOf(args[1])
			if fromRemote == toRemote {
				return usagef("cp copies between this machine and a sandbox: one of %q and %q must be ID:PATH", args[0], args[1])
			}
			there := from
			if toRemote {
				there = to
			}
			if !path.IsAbs(there.path) {
				return usagef("path %q is not absolute", there.path)
			}
			api, err := a.client(cmd.Context(), a.limit())
			if err != nil {
				return err
			}
			c := &copying{app: a, sandbox: api.Of(there.id), in: cmd.InOrStdin(), out: cmd.OutOrStdout()}
			if toRemote {
				err = c.up(cmd.Context(), args[0], there.path)
			} else {
				err = c.down(cmd.Context(), there.path, args[1])
			}
			return a.explainGone(cmd.Context(), there.id, err)
		},
	}
}

// remote is a path in a sandbox.
type remote struct{ id, path string }

var sandboxID = regexp.MustCompile(`^[0-9a-z]{26}-[a-z][-a-z0-9]*$`)

func remoteOf(argument string) (remote, bool) {
	id, at, ok := strings.Cut(argument, ":")
	return remote{id, at}, ok && sandboxID.MatchString(id)
}

// copying copies between this machine and a sandbox.
type copying struct {
	app     *app
	sandbox *client.Sandbox
	in      io.Reader
	out     io.Writer
}

// up copies into the sandbox.
func (c *copying) up(ctx context.Context, local, to string) error {
	if local == "-" {
		return c.sandbox.Write(ctx, to, c.in)
	}
	info, err := os.Stat(local)
	if err != nil {
		return fmt.Errorf("reading %s: %w", local, err)
	}
	if info.IsDir() {
		return c.folderUp(ctx, local, to)
	}
	if strings.HasSuffix(to, "/") {
		to += filepath.Base(local)
	}
	file, err := os.Open(local)
	if err != nil {
		return fmt.Errorf("reading %s: %w", local, err)
	}
	defer file.Close()
	err = c.sandbox.Write(ctx, to, file)
	if err != nil && withoutDaemon(err) {
		return c.unpack(ctx, func(w io.Writer) error { return pack(w, local, strings.Trim(to, "/")) })
	}
	return err
}

// folderUp copies a folder into the sandbox.
func (c *copying) folderUp(ctx context.Context, local, to string) error {
	// The daemon reads a body only if it can use it. So a daemon that does not know archives has consumed nothing.
	err := streamed(func(w io.Writer) error { return pack(w, local, "") }, func(r io.Reader) error {
		_, err := c.sandbox.Unpack(ctx, to, r)
		return err
	})
	if err != nil && withoutDaemon(err) {
		return c.unpack(ctx, func(w io.Writer) error { return pack(w, local, strings.Trim(to, "/")) })
	}
	return err
}

// streamed pipes what write writes to read. It returns the error of read, else that of write.
func streamed(write func(io.Writer) error, read func(io.Reader) error) error {
	from, to := io.Pipe()
	written := make(chan error, 1)
	go func() {
		err := write(to)
		_ = to.CloseWithError(err)
		written <- err
	}()
	err := read(from)
	_ = from.CloseWithError(errors.New("nothing more is taken"))
	if other := <-written; err == nil {
		return other
	}
	return err
}

// unpack runs tar in the sandbox with what write writes as its input.
func (c *copying) unpack(ctx context.Context, write func(io.Writer) error) error {
	return streamed(write, func(r io.Reader) error {
		return c.exec(ctx, r, io.Discard, "tar", "x", "-o", "-f", "-", "-C", "/")
	})
}

// down copies out of the sandbox.
func (c *copying) down(ctx context.Context, from, local string) error {
	if local == "-" {
		return c.content(ctx, from, c.out)
	}
	info, err := c.sandbox.Stat(ctx, from)
	folder := err == nil && info.Type == "DIRECTORY"
	if err != nil && withoutDaemon(err) {
		folder, err = c.isFolder(ctx, from)
	}
	if err != nil {
		return err
	}
	if folder {
		return c.folder(ctx, from, local)
	}
	if info, err := os.Stat(local); strings.HasSuffix(local, string(filepath.Separator)) || err == nil && info.IsDir() {
		local = filepath.Join(local, path.Base(from))
	}
	return toFile(local, func(w io.Writer) error { return c.content(ctx, from, w) })
}

// toFile calls write with a file of this machine. A regular or missing file appears only when it is complete: a part must not be taken for
// the whole, and a failed copy must leave the old file unchanged. Another kind of file, such as a pipe, is written directly. So is a file
// in a folder that takes no new files, because no other file can replace it.
func toFile(local string, write func(io.Writer) error) error {
	info, err := os.Stat(local)
	_, missing := os.Lstat(local)
	switch {
	case err == nil && info.Mode().IsRegular():
		target, err := filepath.EvalSymlinks(local)
		if err == nil {
			err = writable(target)
		}
		if err != nil {
			return fmt.Errorf("writing %s: %w", local, err)
		}
		mode, began := info.Mode().Perm(), false
		err = replace(target, mode, func(file *os.File) error {
			began = true
			if err := write(file); err != nil {
				return err
			}
			return file.Chmod(mode) // regardless of the umask
		})
		if refused := errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS); began || !refused {
			return err
		}
		return overwrite(target, write)
	case errors.Is(missing, fs.ErrNotExist):
		return replace(local, 0o666, func(file *os.File) error { return write(file) })
	}
	file, err := os.Create(local)
	if err != nil {
		return fmt.Errorf("writing %s: %w", local, err)
	}
	return errors.Join(write(file), file.Close())
}

// overwrite calls write with an existing file.
func overwrite(path string, write func(io.Writer) error) error {
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	to := &inPlace{file: file}
	if err = write(to); err == nil {
		err = to.empty()
	}
	return errors.Join(err, file.Close())
}

// inPlace empties its file at the first write, so that a copy that cannot begin leaves the file unchanged.
type inPlace struct {
	file  *os.File
	began bool
}

func (p *inPlace) empty() error {
	if p.began {
		return nil
	}
	p.began = true
	return p.file.Truncate(0)
}

func (p *inPlace) Write(b []byte) (int, error) {
	if err := p.empty(); err != nil {
		return 0, err
	}
	return p.file.Write(b)
}

// writable returns an error for a file without write permission, because a rename would replace it nevertheless.
func writable(path string) error {
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	return file.Close()
}

// replace calls write with a new file in the same directory, and renames it to path. The umask applies to mode.
func replace(path string, mode fs.FileMode, write func(*os.File) error) error {
	file, err := os.OpenFile(filepath.Join(filepath.Dir(path), ".atollctl-"+rand.Text()), os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	if err = write(file); err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(file.Name()))
	}
	return nil
}

// isFolder reports whether a path is a folder. It runs commands of the sandbox's image, because there is no daemon.
func (c *copying) isFolder(ctx context.Context, from string) (bool, error) {
	if c.exec(ctx, nil, io.Discard, "test", "-d", from) == nil {
		return true, nil
	}
	var failed *exitError
	if err := c.exec(ctx, nil, io.Discard, "test", "-e", from); errors.As(err, &failed) && failed.code == 1 {
		return false, problem.New(problem.NotFound, "the sandbox has no %s", from)
	}
	return false, nil // the image may lack test but have cat
}

// content copies the content of a file of the sandbox.
func (c *copying) content(ctx context.Context, from string, to io.Writer) error {
	file, err := c.sandbox.Open(ctx, from)
	if err != nil && withoutDaemon(err) {
		return c.exec(ctx, nil, to, "cat", from)
	}
	if err != nil {
		return err
	}
	defer file.Close()
	if _, err := io.Copy(to, file); err != nil {
		return fmt.Errorf("copying %s: %w", from, err)
	}
	return nil
}

// folder copies a folder of the sandbox.
func (c *copying) folder(ctx context.Context, from, local string) error {
	if err := os.MkdirAll(local, 0o777); err != nil { //nolint:gosec // the user's umask decides
		return fmt.Errorf("writing %s: %w", local, err)
	}
	archive, err := c.sandbox.Pack(ctx, from)
	if err == nil {
		defer archive.Close()
		return unpackInto(archive, local)
	}
	if !withoutDaemon(err) {
		return err
	}
	return streamed(func(w io.Writer) error { return c.exec(ctx, nil, w, "tar", "c", "-f", "-", "-C", from, ".") },
		func(r io.Reader) error { return unpackInto(r, local) })
}

// maxSaid bounds what an error says of a command's stderr.
const maxSaid = 4 << 10

// firstBytes keeps the first bytes that are written to it, and drops the others, because a sandbox may write without end.
type firstBytes struct{ kept []byte }

func (f *firstBytes) Write(p []byte) (int, error) {
	f.kept = append(f.kept, p[:min(len(p), maxSaid+1-len(f.kept))]...) // the last one tells that there are more
	return len(p), nil
}

// exec runs a command in the sandbox, and fails unless the command succeeds.
func (c *copying) exec(ctx context.Context, in io.Reader, out io.Writer, command ...string) error {
	var said firstBytes
	e := &execution{in: in, out: out, errOut: &said, stdin: in != nil}
	query := url.Values{"command": command}
	if in != nil {
		query.Set("stdin", "true")
	}
	code, err := e.run(ctx, c.app, c.sandbox.ID(), query)
	switch {
	case err != nil:
		return fmt.Errorf("running %s in the sandbox: %w", command[0], err)
	case ctx.Err() != nil:
		return ctx.Err()
	case code != 0:
		return &exitError{command: command[0], code: code, said: clip.Text(clip.Line(string(said.kept)), maxSaid)}
	}
	return nil
}

// exitError means that a command in a sandbox failed.
type exitError struct {
	command string
	code    int
	said    string
}

func (e *exitError) Error() string {
	return fmt.Sprintf("%s in the sandbox ended with %d: %s", e.command, e.code, e.said)
}
