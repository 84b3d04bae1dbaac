// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"navix.sh/atoll/pkg/durable"
	"navix.sh/atoll/pkg/link"
)

const (
	// Lifetime is the validity of certificates of hubs and clusters after their issue.
	Lifetime   = 30 * 24 * time.Hour
	caLifetime = 10 * 365 * 24 * time.Hour

	caCert = "ca.crt"
	caKey  = "ca.key"
	caNew  = "ca.crt.new" // until the key exists
)

// Authority issues certificates into its directory.
type Authority struct {
	dir  string
	cert *x509.Certificate
	key  crypto.Signer
}

// New opens the CA in dir, or creates one.
func New(dir string) (*Authority, error) {
	a, err := Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return Create(dir)
	}
	return a, err
}

// Open opens the CA in dir. The error is fs.ErrNotExist if there is none.
func Open(dir string) (*Authority, error) {
	a := &Authority{dir: dir}
	pair, err := tls.LoadX509KeyPair(a.path(caCert), a.path(caKey))
	if err != nil {
		return nil, fmt.Errorf("reading the CA in %s: %w", dir, err)
	}
	key, ok := pair.PrivateKey.(crypto.Signer)
	if !ok || !pair.Leaf.IsCA {
		return nil, fmt.Errorf("reading the CA in %s: %s is no CA's certificate", dir, caCert)
	}
	a.cert, a.key = pair.Leaf, key
	return a, nil
}

// Create creates a CA in dir, or completes an interrupted creation. It never replaces a CA or a part of one: if the CA's key were lost, all
// its certificates would have to be issued again by another CA. In that case the error is fs.ErrExist.
func Create(dir string) (*Authority, error) {
	if err := durable.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("creating a directory for certificates: %w", err)
	}
	a := &Authority{dir: dir}
	_, err := os.Lstat(a.path(caCert))
	_, cutOff := tls.LoadX509KeyPair(a.path(caNew), a.path(caKey))
	if errors.Is(err, fs.ErrNotExist) && cutOff == nil {
		if err := a.finish(); err != nil {
			return nil, err
		}
		return Open(dir)
	}
	for _, name := range []string{caKey, caCert} {
		if _, err := os.Lstat(a.path(name)); err == nil {
			return nil, fmt.Errorf("making a CA: %s: %w", a.path(name), fs.ErrExist)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("making a CA: %w", err)
		}
	}
	return a, a.create()
}

// CAFile returns the path of the CA's certificate.
func (a *Authority) CAFile() string { return a.path(caCert) }

// Certificate returns the CA's certificate.
func (a *Authority) Certificate() *x509.Certificate { return a.cert }

// Issued returns the last certificate for a hub or a cluster that is still in the directory. The error is fs.ErrNotExist if there is none.
func (a *Authority) Issued(who link.Identity) (*x509.Certificate, error) {
	path := a.path(fileName(who) + ".crt")
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading a certificate: %w", err)
	}
	block, _ := pem.Decode(raw)
	if block == nil {
		return nil, fmt.Errorf("reading a certificate: %s holds no PEM block", path)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("reading a certificate: %s: %w", path, err)
	}
	return cert, nil
}

// Hub issues a certificate for a hub with the given host names and addresses.
func (a *Authority) Hub(hosts ...string) (link.Files, error) {
	return a.issue(link.Hub(), hubTemplate(hosts))
}

// Cluster issues a certificate for a cluster's worker.
func (a *Authority) Cluster(id string) (link.Files, error) {
	if !link.ValidClusterID(id) {
		return link.Files{}, fmt.Errorf("issuing a certificate: %q is no cluster id", id)
	}
	return a.issue(link.Cluster(id), clusterTemplate(id))
}

func (a *Authority) create() error {
	ca, err := NewCA("atoll federation CA", time.Now())
	if err != nil {
		return err
	}
	key, err := ca.KeyPEM()
	if err != nil {
		return err
	}
	a.cert, a.key = ca.cert, ca.key
	// Rename the certificate last: from then on the CA exists.
	if err := a.write(caNew, ca.PEM(), 0o644); err != nil {
		return err
	}
	if err := a.write(caKey, key, 0o600); err != nil {
		return err
	}
	return a.finish()
}

// finish completes a CA from its key, whose name it first makes durable, and the prepared certificate.
func (a *Authority) finish() error {
	err := durable.SyncDir(a.dir)
	if err == nil {
		err = durable.Rename(a.path(caNew), a.path(caCert))
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", caCert, err)
	}
	return nil
}

func fileName(who link.Identity) string {
	if who == link.Hub() {
		return "hub"
	}
	return "cluster-" + who.ClusterID
}

func (a *Authority) issue(who link.Identity, template *x509.Certificate) (link.Files, error) {
	key, keyPEM, err := link.NewKey()
	if err != nil {
		return link.Files{}, err
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.URIs = []*url.URL{who.URI()}
	der, err := sign(template, Lifetime, time.Now(), a.cert, key.Public(), a.key)
	if err != nil {
		return link.Files{}, err
	}
	name := fileName(who)
	files := link.Files{Cert: a.path(name + ".crt"), Key: a.path(name + ".key"), CA: a.CAFile()}
	if err := a.write(name+".key", keyPEM, 0o600); err != nil {
		return link.Files{}, err
	}
	if err := a.write(name+".crt", encode("CERTIFICATE", der), 0o644); err != nil {
		return link.Files{}, err
	}
	return files, nil
}

func (a *Authority) path(name string) string { return filepath.Join(a.dir, name) }

func (a *Authority) write(name string, content []byte, mode fs.FileMode) error {
	err := durable.WriteFile(a.path(name), mode, func(f *os.File) error {
		_, err := f.Write(content)
		return err
	})
	if err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	return nil
}
