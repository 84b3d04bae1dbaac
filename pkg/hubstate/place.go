// SPDX-License-Identifier: Apache-2.0

package hubstate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"

	"navix.sh/atoll/pkg/envelope"
	"navix.sh/atoll/pkg/store"
	"navix.sh/atoll/pkg/usage"
)

// Store is an open store of one kind: a file or a part of etcd.
type Store interface {
	store.Store
	store.Sealed
	// CopyTo writes a consistent copy to a new file.
	CopyTo(path string) error
	Schema() uint64
	// Failure returns the error of the last write, or nil if it succeeded.
	Failure() error
	Register(prometheus.Registerer) error
}

var (
	_ Store        = (*store.Bolt)(nil)
	_ Store        = (*store.Etcd)(nil)
	_ store.Shared = (*store.Etcd)(nil)
)

// Place is where a hub keeps its stores: a directory, or an etcd.
type Place struct {
	Dir  string             // of files; empty: etcd
	Etcd *store.EtcdOptions // without kind, schema and sealer
}

// EtcdFlags are the flags for a Place in etcd.
type EtcdFlags struct {
	cert, key, ca, prefix, user string
}

// Bind adds the flags.
func (f *EtcdFlags) Bind(flags *pflag.FlagSet) {
	flags.StringVar(&f.cert, "etcd-cert-file", "", "certificate to show to etcd; it is read anew for each connection")
	flags.StringVar(&f.key, "etcd-key-file", "", "its key")
	flags.StringVar(&f.ca, "etcd-ca-file", "", "CAs of etcd's certificates; default: the system's")
	flags.StringVar(&f.prefix, "etcd-prefix", "/atoll", "what the keys of this hub begin with; hubs that share an etcd have one each")
	flags.StringVar(&f.user, "etcd-user-file", "", "file with a user of etcd, as NAME:PASSWORD; default: no user, or the certificate's")
}

// given reports whether a flag was set that only etcd uses.
func (f *EtcdFlags) given() bool { return f.cert != "" || f.key != "" || f.ca != "" || f.user != "" }

// Place parses bbolt:DIRECTORY or etcd:URL,URL.
func (f *EtcdFlags) Place(flag, value string) (Place, error) {
	p, err := f.place(flag, value)
	if err == nil && p.Etcd == nil && f.given() {
		err = fmt.Errorf("%s: %q has no use for --etcd-cert-file, --etcd-key-file, --etcd-ca-file and --etcd-user-file", flag, value)
	}
	return p, err
}

func (f *EtcdFlags) place(flag, value string) (Place, error) {
	kind, where, _ := strings.Cut(value, ":")
	switch {
	case kind == "bbolt" && where != "":
		return Place{Dir: filepath.Clean(where)}, nil
	case kind != "etcd":
		return Place{}, usage.Errorf("%s: %q is not valid, want bbolt:DIRECTORY or etcd:https://HOST:PORT,https://HOST:PORT", flag, value)
	}
	o := store.EtcdOptions{
		Endpoints: strings.Split(where, ","), CertFile: f.cert, KeyFile: f.key, CAFile: f.ca, Prefix: f.prefix,
	}
	if f.user != "" {
		content, err := os.ReadFile(f.user)
		if err != nil {
			return Place{}, fmt.Errorf("--etcd-user-file: %w", err)
		}
		var ok bool
		if o.Username, o.Password, ok = strings.Cut(strings.TrimSpace(string(content)), ":"); !ok || o.Username == "" || o.Password == "" {
			return Place{}, fmt.Errorf("--etcd-user-file: %s is not valid, want NAME:PASSWORD", f.user)
		}
	}
	if err := o.Validate(); err != nil {
		return Place{}, fmt.Errorf("%s: %w", flag, err)
	}
	return Place{Etcd: &o}, nil
}

func (p Place) String() string {
	if p.Etcd != nil {
		return fmt.Sprintf("etcd:%s (prefix %s)", strings.Join(p.Etcd.Endpoints, ","), p.Etcd.Prefix)
	}
	return "bbolt:" + p.Dir
}

// Open opens the store of a kind, or creates it. The error says what the operator can do.
func (p Place) Open(ctx context.Context, kind Kind, sealer *envelope.Sealer) (Store, error) {
	if p.Etcd == nil {
		file, err := OpenSealed(p.Dir, kind, sealer)
		if err != nil {
			return nil, err // avoids an interface with a typed nil
		}
		return file, nil
	}
	s, err := store.OpenEtcd(ctx, p.etcd(kind, sealer))
	if err != nil {
		return nil, fmt.Errorf("%w%s", err, etcdAdvice(err))
	}
	return s, nil
}

func (p Place) etcd(kind Kind, sealer *envelope.Sealer) store.EtcdOptions {
	o := *p.Etcd
	o.Kind, o.Schema, o.Sealer = string(kind), uint64(len(migrations[kind]))+1, sealer
	return o
}

func etcdAdvice(err error) string {
	switch {
	case errors.Is(err, store.ErrEncrypted):
		return "; give the file with its keys: --encryption-key-file"
	case errors.Is(err, store.ErrNewer):
		return "; run that build"
	default:
		return ""
	}
}
