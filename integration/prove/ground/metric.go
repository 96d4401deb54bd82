package ground

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// sample finds the value of a metric in a page of them.
func sample(page io.Reader, name string) (float64, error) {
	for lines := bufio.NewScanner(page); lines.Scan(); {
		if value, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			return strconv.ParseFloat(value, 64)
		}
	}
	return 0, fmt.Errorf("the daemon has no metric %s", name)
}
