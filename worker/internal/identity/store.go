// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"navix.sh/atoll/pkg/durable"
)

// SecretName is the name of the Secret.
const SecretName = "atoll-worker-identity"

// Keys of a Data.
const (
	KeyName   = "tls.key"
	CertName  = "tls.crt" // with its chain
	TrustName = "ca.crt"
	// NextKeyName and NextCertName are the keys of a certificate that is requested, or that no hub has accepted yet.
	NextKeyName  = "next.key"
	NextCertName = "next.crt"
	// invitationName is the key of the id of the last used invitation.
	invitationName = "invitation"
)

// Data is the stored identity.
type Data map[string][]byte

// ErrConflict means that another process has changed the data since they were read.
var ErrConflict = errors.New("the identity was changed by another process")

// Store stores Data. version is the version that Load returned; it is "" while nothing is stored.
type Store interface {
	Load(ctx context.Context) (data Data, version string, err error)
	Save(ctx context.Context, data Data, version string) error
	fmt.Stringer
}

// Secret is a Store. The worker may not create the Secret, because that would be a right to create any Secret of the namespace. The chart
// creates it.
type Secret struct {
	Client client.Client
	Reader client.Reader // not cached
	Name   types.NamespacedName
}

func (s Secret) String() string { return "Secret " + s.Name.String() }

// Load implements Store.
func (s Secret) Load(ctx context.Context) (Data, string, error) {
	secret := &corev1.Secret{}
	err := s.Reader.Get(ctx, s.Name, secret)
	if apierrors.IsNotFound(err) {
		return Data{}, "", nil
	}
	if err != nil {
		return nil, "", fmt.Errorf("reading %s: %w", s, err)
	}
	return secret.Data, secret.ResourceVersion, nil
}

// Save implements Store.
func (s Secret) Save(ctx context.Context, data Data, version string) error {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Name.Namespace, Name: s.Name.Name}, Type: corev1.SecretTypeOpaque, Data: data,
	}
	var err error
	if version == "" {
		err = s.Client.Create(ctx, secret)
	} else {
		// Labels and annotations are kept.
		was := &corev1.Secret{}
		if err := s.Reader.Get(ctx, s.Name, was); err != nil {
			return fmt.Errorf("reading %s: %w", s, err)
		}
		secret.ObjectMeta, secret.Type, secret.ResourceVersion = was.ObjectMeta, was.Type, version
		err = s.Client.Update(ctx, secret)
	}
	switch {
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		return fmt.Errorf("%w: %s: %w", ErrConflict, s, err)
	case apierrors.IsForbidden(err) && version == "":
		return fmt.Errorf("creating %s: %w; the worker may only change it: kubectl -n %s create secret generic %s", s, err, s.Name.Namespace,
			s.Name.Name)
	case err != nil:
		return fmt.Errorf("writing %s: %w", s, err)
	}
	return nil
}

const (
	fileName = "identity.json"
	maxFile  = 1 << 20
)

// Directory is a Store of one file. It is for a worker outside of Kubernetes, or one whose namespace must not hold its key.
type Directory string

func (d Directory) String() string { return d.path() }

func (d Directory) path() string { return filepath.Join(string(d), fileName) }

// Load implements Store.
func (d Directory) Load(context.Context) (Data, string, error) {
	file, err := os.Open(d.path())
	if errors.Is(err, fs.ErrNotExist) {
		return Data{}, "", nil
	}
	if err != nil {
		return nil, "", fmt.Errorf("reading the identity: %w", err)
	}
	defer file.Close()
	raw, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err != nil {
		return nil, "", fmt.Errorf("reading the identity: %w", err)
	}
	if len(raw) > maxFile {
		return nil, "", fmt.Errorf("reading the identity: %s has more than %d bytes", d, maxFile)
	}
	var text map[string]string
	if err := json.Unmarshal(raw, &text); err != nil {
		return nil, "", fmt.Errorf("reading the identity: %s: %w", d, err)
	}
	data := Data{}
	for name, value := range text {
		data[name] = []byte(value)
	}
	sum := sha256.Sum256(raw)
	return data, hex.EncodeToString(sum[:]), nil
}

// Save implements Store. The write is durable, and the file is either the old or the new one at any time.
func (d Directory) Save(ctx context.Context, data Data, version string) error {
	if _, now, err := d.Load(ctx); err != nil {
		return err
	} else if now != version {
		return fmt.Errorf("%w: %s", ErrConflict, d)
	}
	text := map[string]string{}
	for name, value := range data {
		text[name] = string(value)
	}
	raw, err := json.MarshalIndent(text, "", "  ")
	if err != nil {
		return fmt.Errorf("writing the identity: %w", err)
	}
	err = durable.MkdirAll(string(d), 0o700)
	if err == nil {
		err = durable.WriteFile(d.path(), 0o600, func(f *os.File) error {
			_, err := f.Write(append(raw, '\n'))
			return err
		})
	}
	if err != nil {
		return fmt.Errorf("writing the identity: %w", err)
	}
	return nil
}

// with returns a copy with the given values set. A nil value removes its key.
func (d Data) with(values Data) Data {
	out := maps.Clone(d)
	if out == nil {
		out = Data{}
	}
	for name, value := range values {
		if value == nil {
			delete(out, name)
		} else {
			out[name] = value
		}
	}
	return out
}
