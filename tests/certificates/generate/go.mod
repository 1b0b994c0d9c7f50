module gatepost.dev/tests/certificates

go 1.26
