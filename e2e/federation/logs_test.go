// SPDX-License-Identifier: Apache-2.0

package federation_test

import (
	"bytes"
	"strings"
)

// refused reports a permission that the chart's RBAC lacks. Impostors (-as-) are refused what others may do.
func refused(file string, line []byte) bool {
	return bytes.Contains(line, []byte(" is forbidden: ")) && !strings.Contains(file, "-as-")
}
