-- Cards, boxes, profiles, and the record of what was applied.

-- makes: cbx.schema_version
CREATE SCHEMA IF NOT EXISTS cbx;
CREATE TABLE IF NOT EXISTS cbx.schema_version (
    version    integer PRIMARY KEY,
    applied_at timestamptz NOT NULL DEFAULT now()
);

-- makes: public.projects
CREATE TABLE IF NOT EXISTS public.projects (
    project_id text COLLATE "C" PRIMARY KEY,
    title      text NOT NULL,
    status     text NOT NULL DEFAULT 'active' CHECK (status IN ('active', 'inactive', 'archived')),
    owner_id   text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now()
);

-- makes: public.cards
CREATE TABLE IF NOT EXISTS public.cards (
    tenant_id    text COLLATE "C" NOT NULL,
    card_id      text COLLATE "C" NOT NULL,
    content      jsonb,
    tool_calls   jsonb,
    tool_call_id text COLLATE "C",
    ttl_seconds  integer,
    expires_at   timestamptz,
    deleted_at   timestamptz,
    metadata     jsonb,
    created_at   timestamptz DEFAULT current_timestamp,
    PRIMARY KEY (tenant_id, card_id)
);
-- Card ids are global, and card-box clients upsert ON CONFLICT (card_id).
CREATE UNIQUE INDEX IF NOT EXISTS uniq_cards_card_id ON public.cards (card_id);
CREATE INDEX IF NOT EXISTS idx_cards_created ON public.cards (tenant_id, created_at, card_id);
-- People type the last characters of an id.
CREATE INDEX IF NOT EXISTS idx_cards_suffix ON public.cards (tenant_id, reverse(card_id));
CREATE INDEX IF NOT EXISTS idx_cards_tool_call ON public.cards (tenant_id, tool_call_id)
    WHERE tool_call_id IS NOT NULL;
CREATE INDEX IF NOT EXISTS idx_cards_turn ON public.cards (tenant_id, (metadata ->> 'agent_turn_id'))
    WHERE metadata ->> 'agent_turn_id' IS NOT NULL;
CREATE INDEX IF NOT EXISTS idx_cards_expiry ON public.cards (tenant_id, expires_at) WHERE expires_at IS NOT NULL;

-- makes: public.card_boxes
CREATE TABLE IF NOT EXISTS public.card_boxes (
    tenant_id  text COLLATE "C" NOT NULL,
    box_id     uuid NOT NULL,
    card_ids   jsonb,
    parent_ids jsonb,
    updated_at timestamptz DEFAULT current_timestamp,
    PRIMARY KEY (tenant_id, box_id)
);
-- Ids do not compress; trying to costs most of an append.
ALTER TABLE public.card_boxes ALTER COLUMN card_ids SET STORAGE EXTERNAL;
CREATE INDEX IF NOT EXISTS idx_boxes_updated ON public.card_boxes (tenant_id, updated_at, box_id);

-- makes: resource.profiles
CREATE SCHEMA IF NOT EXISTS resource;
CREATE TABLE IF NOT EXISTS resource.profiles (
    project_id             text COLLATE "C" NOT NULL,
    profile_box_id         text NOT NULL,
    name                   text NOT NULL,
    worker_target          text NOT NULL,
    tags                   jsonb NOT NULL DEFAULT '[]',
    system_prompt_compiled text,
    updated_at             timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (project_id, profile_box_id)
);
CREATE UNIQUE INDEX IF NOT EXISTS idx_resource_profiles_project_name ON resource.profiles (project_id, name);
CREATE UNIQUE INDEX IF NOT EXISTS uniq_profiles_name_any_case ON resource.profiles (project_id, lower(name));

-- makes: cbx.box_info
-- What card_boxes has no column for. provenance: {recipe, recipe_digest, digest, rules: [{rule, cards}]}.
CREATE TABLE IF NOT EXISTS cbx.box_info (
    project_id text COLLATE "C" NOT NULL,
    box_id     uuid NOT NULL,
    title      text,
    provenance jsonb,
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (project_id, box_id)
);
