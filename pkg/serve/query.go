// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"github.com/grpc-ecosystem/grpc-gateway/v2/utilities"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"navix.sh/atoll/pkg/problem"
)

// incoming collects the faults of a REST request that the gateway's own parsers do not report: they keep only the text of an error, and
// ignore unknown parameters.
type incoming struct {
	method string
	query  url.Values
	faults []problem.Field // of the query and of the body
}

type incomingKey struct{}

// withIncoming stores the query of a request, and later the faults of its body, in the context.
func withIncoming(r *http.Request) *http.Request {
	in := &incoming{method: r.Method}
	var err error
	if in.query, err = url.ParseQuery(r.URL.RawQuery); err != nil {
		in.fault("query", clipped(r.URL.RawQuery), "a query as in ?a=b&c=d, with % and ; escaped")
		r = r.Clone(r.Context())
		r.URL.RawQuery = "" // the gateway would report it in other words
	}
	r = r.WithContext(context.WithValue(r.Context(), incomingKey{}, in))
	r.Body = &keptBody{ReadCloser: r.Body, in: in}
	return r
}

// incomingFrom returns nil if the call is not from a REST request.
func incomingFrom(ctx context.Context) *incoming {
	in, _ := ctx.Value(incomingKey{}).(*incoming)
	return in
}

func (in *incoming) fault(field, value, valid string) {
	in.faults = append(in.faults, problem.Field{Field: field, Value: value, Valid: valid})
}

// keptBody links a body to its request, because the decoder gets only the body.
type keptBody struct {
	io.ReadCloser
	in *incoming
}

// laterQuery leaves the query to incoming.complete, because the gateway keeps only the text of an error.
type laterQuery struct{}

func (laterQuery) Parse(proto.Message, url.Values, *utilities.DoubleArray) error { return nil }

// complete reads the query into the request message of a call, and returns everything that is wrong with the query and the body. It accepts
// query parameters only for GET and DELETE, and only for fields that the path has not set.
func (in *incoming) complete(args any) error {
	request, ok := args.(proto.Message)
	if in == nil || !ok {
		return nil
	}
	var free []protoreflect.FieldDescriptor
	if in.method == http.MethodGet || in.method == http.MethodDelete {
		fields := request.ProtoReflect().Descriptor().Fields()
		for i := range fields.Len() {
			if !request.ProtoReflect().Has(fields.Get(i)) {
				free = append(free, fields.Get(i))
			}
		}
	}
	for name, values := range in.query {
		in.parameter(request, free, name, values)
	}
	if len(in.faults) == 0 {
		return nil
	}
	slices.SortFunc(in.faults, func(a, b problem.Field) int { return strings.Compare(a.Field, b.Field) })
	return problem.InvalidFields(in.faults...)
}

func (in *incoming) parameter(request proto.Message, free []protoreflect.FieldDescriptor, name string, values []string) {
	i := slices.IndexFunc(free, func(f protoreflect.FieldDescriptor) bool {
		return name == f.JSONName() || name == string(f.Name())
	})
	if i < 0 {
		in.fault(clipped(name), clipped(strings.Join(values, ",")), validNames(name, "a query parameter", free))
		return
	}
	field := free[i]
	if !field.IsList() && len(values) != 1 {
		in.fault(name, clipped(strings.Join(values, ",")), "one value")
		return
	}
	for i, value := range values {
		if valid := validScalar(field, &values[i]); valid != "" {
			in.fault(name, clipped(value), valid)
			return
		}
	}
	single := url.Values{string(field.Name()): values}
	if err := (&runtime.DefaultQueryParser{}).Parse(request, single, utilities.NewDoubleArray(nil)); err != nil {
		in.fault(name, clipped(strings.Join(values, ",")), validOf(field))
	}
}

// validNames describes the fields that exist. The one closest to the wrong name comes first.
func validNames(wrong, what string, fields []protoreflect.FieldDescriptor) string {
	names := make([]string, 0, len(fields))
	for _, f := range fields {
		names = append(names, f.JSONName())
	}
	slices.Sort(names)
	switch near := problem.Nearest(wrong, names); {
	case len(names) == 0:
		return "no " + strings.TrimPrefix(what, "a ") + " here"
	case near != "":
		return near + "; there are: " + strings.Join(names, ", ")
	default:
		return "one of: " + strings.Join(names, ", ")
	}
}
