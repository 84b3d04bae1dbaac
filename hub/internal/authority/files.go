// SPDX-License-Identifier: Apache-2.0

package authority

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"navix.sh/atoll/pkg/link"
	"navix.sh/atoll/pkg/link/pki"
	"navix.sh/atoll/pkg/wallclock"
)

// fromFiles returns the hub's certificate from its files, with the CA that signed it, so that a worker that knows only the CA's hash can
// verify it.
func (a *Authority) fromFiles() (link.PEM, error) {
	out, err := a.opts.Files.Read()
	if err != nil {
		return out, err
	}
	anchor, err := anchorOf(out.Cert, slices.Concat(out.CA, a.view.trust.Bundle))
	if err != nil {
		return out, fmt.Errorf("reading %s: %w", a.opts.Files, err)
	}
	if !bytes.Contains(out.Cert, bytes.TrimSpace(pki.Bundle(anchor))) {
		out.Cert = slices.Concat(bytes.TrimRight(out.Cert, "\n"), []byte("\n"), pki.Bundle(anchor))
	}
	out.CA = slices.Concat(out.CA, []byte("\n"), a.view.trust.Bundle)
	return out, nil
}

// followFiles applies changes of the CAs in the files, until ctx ends; because clusters must trust new CAs before a certificate of them is
// used. If the new content is not usable, the previous CAs stay.
func (a *Authority) followFiles(ctx context.Context) {
	var last []byte
	var failing bool
	for wallclock.Sleep(ctx, a.opts.Clock, rotateEvery) == nil {
		files, err := a.opts.Files.Read()
		if err == nil && last != nil && bytes.Equal(files.CA, last) { // the same content twice: no write is in progress
			err = a.takeFiles(files.CA)
		}
		if err != nil && !failing {
			a.opts.Log.Error(err, "Cannot use the CAs of the files, keeping those that were read before", "files", a.opts.Files.String())
		}
		last, failing = files.CA, err != nil
	}
}

// presentFileCAs returns the CAs of the files that the present view has. Before there is a view it reads them. Later followFiles alone
// takes them up; because the file may just be being written. Called with mu held.
func (a *Authority) presentFileCAs() ([]byte, error) {
	switch {
	case a.view != nil:
		return a.view.fileCAs, nil
	case a.opts.Files == nil:
		return nil, nil
	}
	files, err := a.opts.Files.Read()
	return files.CA, err
}

var errNoCA = errors.New("there is no CA certificate in the file")

// takeFiles creates a new view if the files have other CAs than the current view.
func (a *Authority) takeFiles(cas []byte) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if bytes.Equal(cas, a.view.fileCAs) {
		return nil
	}
	if certs, err := pki.ParseCertificates(cas); err != nil || len(certs) == 0 {
		return errors.Join(err, errNoCA)
	}
	next, err := a.derive(&a.state, cas)
	if err != nil {
		return err
	}
	a.opts.Log.Info("The CAs of the files have changed", "files", a.opts.Files.String())
	a.show(next)
	return nil
}
