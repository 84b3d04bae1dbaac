// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/utils/clock"

	"navix.sh/atoll/hub/internal/authority"
	"navix.sh/atoll/pkg/durable"
	"navix.sh/atoll/pkg/link"
	"navix.sh/atoll/pkg/link/pki"
)

// joinOptions configure the hub's CA and the joining of clusters.
type joinOptions struct {
	names         []string
	caCert, caKey string
	approve       string
	lifetime      time.Duration
}

const (
	approveAuto   = "auto"
	approveManual = "manual"
	maxLifetime   = 366 * 24 * time.Hour
	caDir         = "ca"
)

func (o *joinOptions) bind(flags *pflag.FlagSet) {
	flags.StringSliceVar(&o.names, "hub-names", nil,
		"DNS names and addresses by which workers and callers reach the hub, for the certificate that it issues to itself, besides "+
			"localhost and the host's name; the first one is in invitations")
	flags.StringVar(&o.caCert, "ca-cert-file", "",
		"certificate of the CA with which the hub lets clusters join, such as an intermediate; default: one that the hub makes at its "+
			"first start, or none with --tls-cert-file. A newer one than the hub's begins a rotation")
	flags.StringVar(&o.caKey, "ca-key-file", "", "its key")
	flags.StringVar(&o.approve, "approve", approveAuto,
		"auto: an invitation lets a cluster in; manual: it waits for `atollctl cluster approve`")
	flags.DurationVar(&o.lifetime, "cluster-certificate-lifetime", authority.DefaultLifetime,
		"how long the certificates last that the hub issues; they are renewed when a fifth is left")
}

func (o *joinOptions) validate() error {
	var errs []error
	if (o.caCert == "") != (o.caKey == "") {
		errs = append(errs, errors.New("--ca-cert-file, --ca-key-file: want both or none"))
	}
	if o.approve != approveAuto && o.approve != approveManual {
		errs = append(errs, fmt.Errorf("--approve: %q is not valid, want %s or %s", o.approve, approveAuto, approveManual))
	}
	if o.lifetime < authority.MinLifetime || o.lifetime > maxLifetime {
		errs = append(errs, fmt.Errorf("--cluster-certificate-lifetime: %s is not valid, want %s to %s", o.lifetime, authority.MinLifetime,
			maxLifetime))
	}
	if slices.Contains(o.names, "") {
		errs = append(errs, fmt.Errorf("--hub-names: %q is not valid, want names or addresses", o.names))
	}
	return errors.Join(errs...)
}

// checkFiles returns an error if only some of the hub's certificate files are given.
func (o *options) checkFiles() error {
	given := 0
	for _, file := range []string{o.tls.Cert, o.tls.Key, o.tls.CA} {
		if file != "" {
			given++
		}
	}
	if given != 0 && given != 3 {
		return errors.New("--tls-cert-file, --tls-key-file, --tls-ca-file: want all three, or none: the hub has a CA of its own then")
	}
	return nil
}

// files reports whether the hub's certificate comes from files.
func (o *options) files() bool { return o.tls.Cert != "" }

// managed reports whether the hub has a CA, so that clusters can join.
func (o *options) managed() bool { return !o.files() || o.joining.caCert != "" }

// hosts returns the names in the hub's own certificate.
func (o *options) hosts() []string {
	hosts := append(slices.Clone(o.joining.names), "localhost", "127.0.0.1", "::1")
	if name, err := os.Hostname(); err == nil && name != "" {
		hosts = append(hosts, name)
	}
	slices.Sort(hosts)
	return slices.Compact(hosts)
}

// address returns the address that workers dial, or "" if it is not known.
func (o *options) address() string {
	_, port, err := net.SplitHostPort(o.linkListen)
	if len(o.joining.names) == 0 || err != nil {
		return ""
	}
	return net.JoinHostPort(o.joining.names[0], port)
}

// fileCredentials reads the hub's certificate files. It returns nil if there are none.
func (h *hub) fileCredentials(o *options) (*link.Credentials, error) {
	if !o.files() {
		return nil, nil
	}
	credentials, err := link.LoadCredentials(o.tls, h.log.WithName("link"))
	if err != nil {
		return nil, err
	}
	if who, err := credentials.Identity(); err != nil || who != link.Hub() {
		return nil, errors.Join(fmt.Errorf("--tls-cert-file %s is no hub's certificate, want the URI name %s", o.tls.Cert, link.Hub()), err)
	}
	return credentials, nil
}

// openAuthority opens the hub's CA, if it has one, and returns the credentials of the link.
func (h *hub) openAuthority(ctx context.Context, o *options, real clock.WithTicker, files *link.Credentials) (*link.Credentials, error) {
	if !o.managed() {
		return files, nil
	}
	options := authority.Options{
		Store: h.registryStore, Clock: real, Log: h.log.WithName("authority"), Hosts: o.hosts(), Address: o.address(),
		Lifetime: o.joining.lifetime, Manual: o.joining.approve == approveManual,
		Changed: func(bundle []byte) { h.writeCA(o, bundle) },
	}
	if o.files() {
		options.Files = &o.tls
	}
	if o.joining.caCert != "" {
		given, err := givenCA(o.joining)
		if err != nil {
			return nil, err
		}
		options.Given = given
	}
	if h.registryCopy != nil {
		options.Keep = h.registryCopy.Keep
	}
	var err error
	if h.authority, err = authority.Open(ctx, options); err != nil {
		return nil, fmt.Errorf("opening the hub's CA: %w", err)
	}
	return link.NewCredentials(h.authority, h.log.WithName("link"))
}

func givenCA(o joinOptions) (*pki.CA, error) {
	cert, err := os.ReadFile(o.caCert)
	if err != nil {
		return nil, fmt.Errorf("--ca-cert-file: %w", err)
	}
	key, err := os.ReadFile(o.caKey)
	if err != nil {
		return nil, fmt.Errorf("--ca-key-file: %w", err)
	}
	ca, err := pki.ParseCA(cert, key)
	if err != nil {
		return nil, fmt.Errorf("--ca-cert-file %s: %w", o.caCert, err)
	}
	return ca, nil
}

// writeCA writes the CAs that callers of the public API need to trust the hub's certificate.
func (h *hub) writeCA(o *options, bundle []byte) {
	dir := filepath.Join(o.dataDir, caDir)
	err := durable.MkdirAll(dir, 0o700)
	if err == nil {
		err = durable.WriteFile(filepath.Join(dir, "ca.crt"), 0o644, func(f *os.File) error {
			_, err := f.Write(bundle)
			return err
		})
	}
	if err != nil {
		h.log.Error(err, "Writing the CA's certificate for callers", "directory", dir)
	}
}
