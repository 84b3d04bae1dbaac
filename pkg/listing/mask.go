// SPDX-License-Identifier: Apache-2.0

package listing

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/validate"
)

// mask is a set of fields of a message, and of nested messages; nil means all fields.
type mask map[protoreflect.Name]mask

func parseMask(f *validate.Faults, paths []string) mask {
	if len(paths) == 0 {
		return nil
	}
	if len(paths) > maxPaths {
		f.Add("readMask", fmt.Sprintf("%d paths", len(paths)), "at most 100")
		return nil
	}
	all := mask{}
	whole := false
	for _, path := range paths {
		if path == "*" {
			whole = true
			continue
		}
		names, valid := resolve((&sandboxv1.Sandbox{}).ProtoReflect().Descriptor(), path)
		if valid != "" {
			f.Add("readMask", validate.Clip(path), valid)
			continue
		}
		all.add(names)
	}
	if whole {
		return nil
	}
	return all
}

// resolve returns the fields on a path, or a description of the valid ones.
func resolve(d protoreflect.MessageDescriptor, path string) (names []protoreflect.Name, valid string) {
	segments := strings.Split(path, ".")
	for i, segment := range segments {
		field := d.Fields().ByJSONName(segment)
		if field == nil {
			field = d.Fields().ByTextName(segment)
		}
		if field == nil {
			return nil, validPaths(d, strings.Join(segments[:i], "."), segment)
		}
		names = append(names, field.Name())
		if i == len(segments)-1 {
			return names, ""
		}
		if field.Message() == nil || field.IsMap() || field.IsList() {
			return nil, strings.Join(segments[:i+1], ".") + ", which has no fields that can be named"
		}
		d = field.Message()
	}
	return names, ""
}

func validPaths(d protoreflect.MessageDescriptor, under, wrong string) string {
	names := make([]string, 0, d.Fields().Len())
	for i := range d.Fields().Len() {
		names = append(names, d.Fields().Get(i).JSONName())
	}
	slices.Sort(names)
	list := strings.Join(names, ", ")
	if under != "" {
		return "a field of " + under + ": " + list
	}
	if near := problem.Nearest(wrong, names); near != "" {
		return near + "; there are: " + list
	}
	return "one of: " + list
}

// add adds a field. A whole field includes its parts.
func (m mask) add(names []protoreflect.Name) {
	sub, known := m[names[0]]
	switch {
	case len(names) == 1:
		m[names[0]] = nil
	case known && sub == nil:
	default:
		if sub == nil {
			sub = mask{}
			m[names[0]] = sub
		}
		sub.add(names[1:])
	}
}

// of returns a message with only the fields of the mask. It shares their values.
func (m mask) of(from protoreflect.Message) protoreflect.Message {
	to := from.New()
	from.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		sub, named := m[field.Name()]
		switch {
		case named && sub == nil:
			to.Set(field, value)
		case named:
			to.Set(field, protoreflect.ValueOfMessage(sub.of(value.Message())))
		}
		return true
	})
	return to
}

// Masked returns a sandbox with only the fields that the caller asked for. It may share them with s.
func (q *Query) Masked(s *sandboxv1.Sandbox) *sandboxv1.Sandbox {
	if q.mask == nil || s == nil {
		return s
	}
	masked, _ := q.mask.of(s.ProtoReflect()).Interface().(*sandboxv1.Sandbox)
	return masked
}

// MaskAll masks sandboxes in place.
func (q *Query) MaskAll(all []*sandboxv1.Sandbox) {
	for i, s := range all {
		all[i] = q.Masked(s)
	}
}
