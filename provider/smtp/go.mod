module github.com/seed-8098fbb7/dispatch/provider/smtp

go 1.26.0

replace github.com/seed-8098fbb7/dispatch => ../..

require (
	github.com/google/uuid v1.6.0
	github.com/seed-8098fbb7/dispatch v0.0.0-00010101000000-000000000000
	github.com/stretchr/testify v1.12.1
	golang.org/x/net v0.62.0
)

require (
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/text v0.43.0 // indirect
)
