// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/textproto"
	"slices"

	"google.golang.org/protobuf/types/known/structpb"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Value is a text, or a reference to a key of a Secret in the sandbox's namespace.
type Value struct {
	Text string
	From *SecretKey
}

// SecretKey identifies a key of a Secret.
type SecretKey struct {
	Name string `json:"name"`
	Key  string `json:"key"`
}

// String describes the key, which is not secret.
func (k SecretKey) String() string { return fmt.Sprintf("key %q of Secret %q", k.Key, k.Name) }

// IsZero reports whether there is neither a text nor a reference.
func (v Value) IsZero() bool { return v.Text == "" && v.From == nil }

// reference is the JSON form of a Value that is not a text. It is that of Kubernetes for environment variables.
type reference struct {
	ValueFrom struct {
		SecretKeyRef *SecretKey `json:"secretKeyRef"`
	} `json:"valueFrom"`
}

// MarshalJSON writes a text as a string, and a reference as {"valueFrom": {"secretKeyRef": {"name": …, "key": …}}}.
func (v Value) MarshalJSON() ([]byte, error) {
	if v.From == nil {
		return json.Marshal(v.Text)
	}
	var r reference
	r.ValueFrom.SecretKeyRef = v.From
	return json.Marshal(r)
}

var errNoValue = errors.New("no value")

// value parses a string, or a reference.
func (f *faults) value(path string, v *structpb.Value) (Value, error) {
	switch kind := v.GetKind().(type) {
	case *structpb.Value_StringValue:
		return Value{Text: kind.StringValue}, nil
	case *structpb.Value_StructValue:
		if fields := kind.StructValue.GetFields(); fields["valueFrom"] != nil {
			return f.reference(object{path: path, fields: fields})
		}
	}
	return Value{}, errNoValue
}

// reference parses a reference. Its faults cannot contain the secret itself.
func (f *faults) reference(o object) (Value, error) {
	before := len(*f)
	f.only(o, "valueFrom")
	from, _ := f.object(o, "valueFrom")
	f.only(from, "secretKeyRef")
	ref, ok := f.object(from, "secretKeyRef")
	if !ok {
		if len(*f) > before {
			return Value{}, nil
		}
		return Value{}, errNoValue
	}
	f.only(ref, "name", "key", "optional")
	key := &SecretKey{
		Name: f.text(ref, "name", validation.DNS1123SubdomainMaxLength, "the name of a Secret"),
		Key:  f.text(ref, "key", validation.DNS1123SubdomainMaxLength, "a key of the Secret"),
	}
	if len(validation.IsDNS1123Subdomain(key.Name)) > 0 {
		f.add(ref.at("name"), shown(key.Name), "the name of a Secret")
	}
	if len(validation.IsConfigMapKey(key.Key)) > 0 {
		f.add(ref.at("key"), shown(key.Key), "a key of the Secret: letters, digits, -, _ and .")
	}
	if ref.fields["optional"].GetBoolValue() {
		f.add(ref.at("optional"), "true", "false: a hook without its value would do something else")
	}
	return Value{From: key}, nil
}

// credentialHeaders are the headers whose value is a credential, by standard or common use.
var credentialHeaders = []string{"Authorization", "Proxy-Authorization", "Cookie", "X-Api-Key", "Api-Key", "X-Auth-Token", "X-Access-Token"}

// Literals returns the paths of headers that contain a credential as text. Such a credential is stored in annotations of Pods and, for a
// claim with a key, in the hub's store.
func Literals(actions []Action) (paths []string) {
	for i, a := range actions {
		if a.HTTP == nil {
			continue
		}
		for name, v := range a.HTTP.Headers {
			if v.From == nil && slices.Contains(credentialHeaders, textproto.CanonicalMIMEHeaderKey(name)) {
				paths = append(paths, fmt.Sprintf("postStartHooks[%d].http.headers.%s", i, shown(name)))
			}
		}
	}
	slices.Sort(paths)
	return paths
}
