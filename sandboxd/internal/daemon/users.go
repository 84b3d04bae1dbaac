// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"connectrpc.com/connect"
)

const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// account is the account that a caller acts as.
type account struct {
	name, home string
	uid, gid   uint32
	groups     []uint32
	other      bool // not the daemon's own account
}

// clientsUser is the account that E2B's images have, and that version 1 of its SDK always names. In an image without it, the container's
// own account takes its place.
const clientsUser = "user"

// userHeader names the user if a gateway consumes Authorization.
const userHeader = "X-Atoll-User"

// accountOf returns the account of a name. Without a name, it returns the one that a request names by HTTP basic authentication, or by
// userHeader; else the default one.
func (d *Daemon) accountOf(name string, header http.Header) (account, error) {
	basic, _, _ := (&http.Request{Header: header}).BasicAuth()
	return d.account(cmp.Or(name, basic, header.Get(userHeader)))
}

// locate returns a request's account, as accountOf does, and the absolute path.
func (d *Daemon) locate(name string, header http.Header, path string) (account, string, error) {
	a, err := d.accountOf(name, header)
	if err != nil {
		return a, "", err
	}
	if path == "" {
		return a, "", connect.NewError(connect.CodeInvalidArgument, errors.New("path is empty"))
	}
	path, err = d.path(a, path)
	return a, path, err
}

func (d *Daemon) account(name string) (account, error) {
	d.mu.Lock()
	name = cmp.Or(name, d.user)
	d.mu.Unlock()
	if name == "" {
		return own(), nil
	}
	found, err := user.Lookup(name)
	if err != nil {
		if me := own(); name == me.name || name == clientsUser {
			return me, nil
		}
		return account{}, connect.NewError(connect.CodeUnauthenticated, fmt.Errorf("user %q: the image has no such account", name))
	}
	uid, err := strconv.ParseUint(found.Uid, 10, 32)
	if err != nil {
		return account{}, connect.NewError(connect.CodeInternal, fmt.Errorf("user %q: uid %q: %w", name, found.Uid, err))
	}
	gid, err := strconv.ParseUint(found.Gid, 10, 32)
	if err != nil {
		return account{}, connect.NewError(connect.CodeInternal, fmt.Errorf("user %q: gid %q: %w", name, found.Gid, err))
	}
	a := account{name: name, home: cmp.Or(found.HomeDir, "/"), uid: uint32(uid), gid: uint32(gid), other: int(uid) != os.Getuid()}
	if a.other && os.Getuid() != 0 {
		return account{}, connect.NewError(connect.CodePermissionDenied,
			fmt.Errorf("user %q: the container runs as uid %d and may act as no other", name, os.Getuid()))
	}
	if ids, err := found.GroupIds(); err == nil {
		for _, id := range ids {
			if n, err := strconv.ParseUint(id, 10, 32); err == nil {
				a.groups = append(a.groups, uint32(n))
			}
		}
	}
	return a, nil
}

// own returns the daemon's own account, which the image may not list.
func own() account {
	a := account{uid: uint32(os.Getuid()), gid: uint32(os.Getgid()), home: cmp.Or(os.Getenv("HOME"), "/"),
		name: os.Getenv("USER")} //nolint:gosec // ids are positive
	if me, err := user.LookupId(strconv.Itoa(os.Getuid())); err == nil {
		a.name, a.home = me.Username, cmp.Or(os.Getenv("HOME"), me.HomeDir, "/")
	}
	return a
}

// credential returns the account's credential, or nil for the daemon's own account.
func (a account) credential() *syscall.Credential {
	if !a.other {
		return nil
	}
	return &syscall.Credential{Uid: a.uid, Gid: a.gid, Groups: a.groups}
}

// give makes the account the owner of a new file.
func (a account) give(path string) {
	if a.other {
		_ = os.Lchown(path, int(a.uid), int(a.gid)) // some filesystems have no owners
	}
}

// path returns an absolute path. Relative paths are below the working directory.
func (d *Daemon) path(a account, path string) (string, error) {
	if strings.ContainsRune(path, 0) {
		return "", connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("path %q has a NUL", path))
	}
	if path == "~" || strings.HasPrefix(path, "~/") {
		return filepath.Join(a.home, path[1:]), nil
	}
	if filepath.IsAbs(path) {
		return filepath.Clean(path), nil
	}
	d.mu.Lock()
	base := cmp.Or(d.workdir, a.home)
	d.mu.Unlock()
	return filepath.Join(base, path), nil
}

// environment merges the image's variables, those of /init, and those of the call, which takes precedence.
func (d *Daemon) environment(a account, extra map[string]string) []string {
	all := map[string]string{"PATH": defaultPath}
	for _, line := range os.Environ() {
		if name, value, ok := strings.Cut(line, "="); ok {
			all[name] = value
		}
	}
	all["HOME"] = a.home
	if a.name != "" {
		all["USER"], all["LOGNAME"] = a.name, a.name
	}
	d.mu.Lock()
	maps.Copy(all, d.env)
	d.mu.Unlock()
	maps.Copy(all, extra)
	out := make([]string, 0, len(all))
	for _, name := range slices.Sorted(maps.Keys(all)) {
		out = append(out, name+"="+all[name])
	}
	return out
}
